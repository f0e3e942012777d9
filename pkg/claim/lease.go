package claim

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leaseLabel marks the Leases of instances among those of duties and others.
const (
	leaseLabel      = "holdfast.io/lease"
	leaseLabelValue = "instance"
)

// renew writes the Lease, creating it when somebody removed it. Nobody else
// writes it: the write needs no swap.
func (i *Instance) renew(ctx context.Context) error {
	if err := i.writeLease(ctx, i.cfg.Name); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ready = true
	return nil
}

func (i *Instance) writeLease(ctx context.Context, holder string) error {
	// A patch: the API server refuses updates of Leases that name no resourceVersion, and nobody else writes this one.
	empty := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.cfg.Namespace, Name: i.cfg.Name}}
	err := i.cfg.Client.Patch(ctx, i.lease(holder), client.MergeFrom(empty))
	if apierrors.IsNotFound(err) && holder != "" {
		err = i.cfg.Client.Create(ctx, i.lease(holder))
	}
	if err != nil {
		return fmt.Errorf("write lease %s: %w", i.cfg.Name, err)
	}
	return nil
}

func (i *Instance) lease(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.cfg.Namespace, Name: i.cfg.Name, Labels: map[string]string{leaseLabel: leaseLabelValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(holder),
			LeaseDurationSeconds: ptr.To(int32(max(i.cfg.Timeout/time.Second, 1))),
			RenewTime:            ptr.To(metav1.NewMicroTime(i.cfg.Clock.Now())),
		},
	}
}

// leave releases the Lease: whoever watches takes over at once.
func (i *Instance) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	if err := i.writeLease(ctx, ""); err != nil && !apierrors.IsNotFound(err) {
		i.cfg.Log.Warn("instance lease not released", "instance", i.cfg.Name, "error", err)
	}
}

func (i *Instance) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	err := i.cfg.Reader.List(ctx, list, client.InNamespace(i.cfg.Namespace), client.MatchingLabels{leaseLabel: leaseLabelValue})
	return list.Items, err
}

// sweep deletes Leases of the long dead, exactly as they were seen.
func (i *Instance) sweep(ctx context.Context, stale map[string]string) {
	for name, version := range stale {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.cfg.Namespace, Name: name}}
		err := i.cfg.Client.Delete(ctx, lease, client.Preconditions{ResourceVersion: &version})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			i.report(ctx, "lease of a dead instance not deleted", err)
		}
	}
}
