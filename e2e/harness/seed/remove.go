package seed

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const removeTimeout = 3 * time.Minute

// clusterKinds lists the cluster-scoped kinds of the estate; namespaces and definitions take what
// is in them along.
func clusterKinds() []client.ObjectList {
	return []client.ObjectList{
		&corev1.NamespaceList{}, &apiextensionsv1.CustomResourceDefinitionList{}, &corev1.PersistentVolumeList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		&storagev1.StorageClassList{}, &schedulingv1.PriorityClassList{}, &networkingv1.IngressClassList{},
	}
}

// Remove deletes the estate, everything with its label, and returns how many cluster-scoped objects
// it deleted once nothing is left.
func Remove(ctx context.Context, config *rest.Config) (int, error) {
	c, err := newClient(config)
	if err != nil {
		return 0, err
	}
	objects, err := presentObjects(ctx, c)
	if err != nil {
		return 0, fmt.Errorf("remove the estate: %w", err)
	}
	for _, object := range objects {
		if err := client.IgnoreNotFound(c.Delete(ctx, object)); err != nil {
			return 0, fmt.Errorf("remove %T %s: %w", object, object.GetName(), err)
		}
	}
	var left []client.Object
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, removeTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		left, err = presentObjects(ctx, c)
		return len(left) == 0, err
	})
	if err != nil {
		return 0, fmt.Errorf("remove the estate: %d objects are left: %w", len(left), err)
	}
	return len(objects), nil
}

// Present reports whether anything with the estate's label is in the cluster.
func Present(ctx context.Context, config *rest.Config) (bool, error) {
	c, err := newClient(config)
	if err != nil {
		return false, err
	}
	objects, err := presentObjects(ctx, c)
	return len(objects) > 0, err
}

func presentObjects(ctx context.Context, c client.Client) ([]client.Object, error) {
	var objects []client.Object
	for _, list := range clusterKinds() {
		if err := c.List(ctx, list, client.MatchingLabels{Label: LabelValue}); err != nil {
			return nil, err
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			object, ok := item.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is not an object", item)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}
