package builtin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader is the Target that a client reads. The client should read from the API server: a cache
// would hold every ConfigMap.
type Reader struct {
	Client client.Reader
	// Namespace is the server's.
	Namespace string
}

// Configs implements Target.
func (r Reader) Configs(ctx context.Context, selector string) ([]Config, error) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("selector of ConfigMaps: %w", err)
	}
	var list corev1.ConfigMapList
	if err := r.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingLabelsSelector{Selector: wanted}); err != nil {
		return nil, fmt.Errorf("list ConfigMaps of namespace %s: %w", r.Namespace, err)
	}
	out := make([]Config, len(list.Items))
	for i := range list.Items {
		out[i] = Config{Name: list.Items[i].Name, Data: list.Items[i].Data}
	}
	return out, nil
}

// StorageClassExists implements Target.
func (r Reader) StorageClassExists(ctx context.Context, name string) (bool, error) {
	var class metav1.PartialObjectMetadata
	class.SetGroupVersionKind(storagev1.SchemeGroupVersion.WithKind("StorageClass"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &class)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
