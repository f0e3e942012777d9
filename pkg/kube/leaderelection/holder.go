package leaderelection

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// FindHolder returns the instance that has the duty of this name, and where it answers gRPC. The error wraps
// errgrpc.ErrUnavailable if no instance has it. One that died is found until another follows.
func FindHolder(ctx context.Context, reader client.Reader, namespace, name string) (instance, address string, err error) {
	lease := &coordinationv1.Lease{}
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: leasePrefix + name}, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", "", fmt.Errorf("read the Lease of %s: %w", name, err)
	}
	instance, address = ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Annotations[holdfast.AnnotationAddress]
	if instance == "" || address == "" {
		return "", "", fmt.Errorf("no %s runs: %w", name, errgrpc.ErrUnavailable)
	}
	return instance, address, nil
}
