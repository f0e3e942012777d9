package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// leaseLabel marks the Leases of instances among those of duties and others.
const (
	leaseLabel      = "holdfast.io/lease"
	leaseLabelValue = "instance"
	// operationsLabel has Config.OperationsOf.
	operationsLabel = "holdfast.io/operations-of"
)

// errStale refuses an answer that is older than what this instance wrote before it.
var errStale = errors.New("the answer lacks the renewal written just before")

// renew writes the Lease, creating it when a user removed it, and returns its resourceVersion. No
// other process writes it: the write needs no swap.
func (i *Instance) renew(ctx context.Context) (version string, err error) {
	begin := i.cfg.Clock.Now()
	if version, err = i.writeLease(ctx, i.cfg.Name); err != nil {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ready = true
	i.certainty.renewed(begin, i.cfg.Clock.Now())
	return version, nil
}

func (i *Instance) writeLease(ctx context.Context, holder string) (version string, err error) {
	// A patch: the API server refuses updates of Leases that name no resourceVersion, and nothing
	// else writes this one.
	empty := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.cfg.Namespace, Name: i.cfg.Name}}
	lease := i.lease(holder)
	err = i.cfg.Client.Patch(ctx, lease, client.MergeFrom(empty))
	if apierrors.IsNotFound(err) && holder != "" {
		lease = i.lease(holder)
		err = i.cfg.Client.Create(ctx, lease)
	}
	if err != nil {
		return "", fmt.Errorf("write lease %s: %w", i.cfg.Name, err)
	}
	return lease.ResourceVersion, nil
}

func (i *Instance) lease(holder string) *coordinationv1.Lease {
	labels := map[string]string{leaseLabel: leaseLabelValue}
	if i.cfg.OperationsOf != "" {
		labels[operationsLabel] = i.cfg.OperationsOf
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.cfg.Namespace, Name: i.cfg.Name, Labels: labels,
			Annotations: map[string]string{holdfast.AnnotationAddress: i.cfg.Address},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(holder),
			LeaseDurationSeconds: ptr.To(int32(max(i.cfg.Timeout/time.Second, 1))),
			RenewTime:            ptr.To(metav1.NewMicroTime(i.cfg.Clock.Now())),
		},
	}
}

// leave releases the Lease: an instance that watches takes over at once.
func (i *Instance) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	i.mu.Lock()
	i.certainty.end()
	i.mu.Unlock()
	if _, err := i.writeLease(ctx, ""); err != nil && !apierrors.IsNotFound(err) {
		i.cfg.Log.Warn("instance lease not released", "instance", i.cfg.Name, "error", err)
	}
}

func (i *Instance) leases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	err := i.cfg.Reader.List(ctx, list, client.InNamespace(i.cfg.Namespace), client.MatchingLabels{leaseLabel: leaseLabelValue})
	return list.Items, err
}

// shows reports whether a list holds the Lease of that name at that version.
func shows(leases []coordinationv1.Lease, name, version string) bool {
	return slices.ContainsFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == name && l.ResourceVersion == version })
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
