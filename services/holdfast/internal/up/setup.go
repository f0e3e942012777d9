package up

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// ErrVelero means that a Velero server serves the namespace.
var ErrVelero = errors.New("a Velero server is running")

// defaultLocation is the name of the location made when there is none.
const defaultLocation = "default"

// refuseVelero fails when a Velero server is in the namespace: both would act on the same objects.
func refuseVelero(ctx context.Context, c client.Client, namespace string) error {
	server, err := mark.FindForeignServer(ctx, c, namespace)
	if err != nil {
		return err
	}
	if server != "" {
		return fmt.Errorf("%w in namespace %q (Deployment %q): scale it down, use another --namespace, or insist with --allow-velero", ErrVelero, namespace, server)
	}
	return nil
}

func ensureNamespace(ctx context.Context, c client.Client, name string) error {
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		namespace.Name = name
		if err = c.Create(ctx, namespace); apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("namespace %q: %w", name, err)
	}
	if namespace.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %q is being deleted", name)
	}
	return nil
}

// ensureLocation creates a location in the data directory when the namespace has none at all; one
// that was made is where backups go.
func ensureLocation(ctx context.Context, c client.Client, cfg Config, dir *dataDir) error {
	list := &velerov1.BackupStorageLocationList{}
	if err := c.List(ctx, list, client.InNamespace(cfg.Namespace)); err != nil {
		return fmt.Errorf("list storage locations: %w", err)
	}
	if len(list.Items) > 0 {
		return nil
	}
	location := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: defaultLocation},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider:    holdfast.ProviderFile,
			Config:      map[string]string{"path": dir.objectsDir()},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: bucket}},
			Default:     true,
		},
	}
	if err := c.Create(ctx, location); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create storage location %q: %w", defaultLocation, err)
	}
	cfg.Log.Info("Created BackupStorageLocation", "name", defaultLocation, "path", dir.objectsDir())
	return nil
}
