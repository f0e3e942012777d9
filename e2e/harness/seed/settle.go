package seed

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const settleTimeout = 2 * time.Minute

// WaitSettled returns when the controllers have made what they make of the objects in the
// namespaces: the default service account and the authority's ConfigMap, ReplicaSets and Pods of
// the wanted number, bound claims, Endpoints. The error names what is missing when that takes over
// two minutes.
func WaitSettled(ctx context.Context, c client.Client, namespaces []string) error {
	var missing string
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settleTimeout, true, func(ctx context.Context) (bool, error) {
		for _, namespace := range namespaces {
			var err error
			if missing, err = unsettledObject(ctx, c, namespace); missing != "" || err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("controllers have not settled, waiting for %q: %w", missing, err)
	}
	return nil
}

// unsettledObject names one thing that controllers still have to make in a namespace.
func unsettledObject(ctx context.Context, c client.Client, namespace string) (string, error) {
	for _, check := range []func(context.Context, client.Client, string) (string, error){
		defaultsMissing, deploymentsBehind, statefulSetsBehind, claimsUnbound, endpointsMissing,
	} {
		if missing, err := check(ctx, c, namespace); missing != "" || err != nil {
			return missing, err
		}
	}
	return "", nil
}

func defaultsMissing(ctx context.Context, c client.Client, namespace string) (string, error) {
	for name, object := range map[string]client.Object{"default": &corev1.ServiceAccount{}, "kube-root-ca.crt": &corev1.ConfigMap{}} {
		if missing, err := absentObject(ctx, c, namespace, name, object); missing != "" || err != nil {
			return missing, err
		}
	}
	return "", nil
}

func absentObject(ctx context.Context, c client.Client, namespace, name string, object client.Object) (string, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("%T %s/%s", object, namespace, name), nil
	}
	return "", err
}

func deploymentsBehind(ctx context.Context, c client.Client, namespace string) (string, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	for _, d := range list.Items {
		if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas != *d.Spec.Replicas {
			return "Deployment " + d.Namespace + "/" + d.Name, nil
		}
	}
	return "", nil
}

func statefulSetsBehind(ctx context.Context, c client.Client, namespace string) (string, error) {
	var list appsv1.StatefulSetList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	for _, s := range list.Items {
		if s.Status.ObservedGeneration < s.Generation || s.Status.Replicas != *s.Spec.Replicas {
			return "StatefulSet " + s.Namespace + "/" + s.Name, nil
		}
	}
	return "", nil
}

func claimsUnbound(ctx context.Context, c client.Client, namespace string) (string, error) {
	var list corev1.PersistentVolumeClaimList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	for _, claim := range list.Items {
		if claim.Status.Phase != corev1.ClaimBound {
			return "PersistentVolumeClaim " + claim.Namespace + "/" + claim.Name, nil
		}
	}
	return "", nil
}

func endpointsMissing(ctx context.Context, c client.Client, namespace string) (string, error) {
	var list corev1.ServiceList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	for _, service := range list.Items {
		if len(service.Spec.Selector) == 0 {
			continue
		}
		//nolint:staticcheck // Endpoints are deprecated, but controllers still make them and backups still hold them.
		if missing, err := absentObject(ctx, c, namespace, service.Name, &corev1.Endpoints{}); missing != "" || err != nil {
			return missing, err
		}
	}
	return "", nil
}
