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
	// leaseTries bounds the writes that meet another: of a user, or an own one whose answer was lost.
	leaseTries = 3

	leaseLabel      = "holdfast.io/lease"
	leaseLabelValue = "instance"
)

// errStale refuses an answer that is older than what this instance wrote before it.
var errStale = errors.New("the answer lacks the renewal written just before")

// renewLease writes the Lease with what declare returns, creating it when a user removed it. The caller
// has the turn to write.
func (i *Instance) renewLease(ctx context.Context, declare func(now time.Time) time.Duration) error {
	begin := i.cfg.Clock.Now()
	i.mu.Lock()
	d := leaseDeclaration{begin: begin, duration: declare(begin)}
	if d.duration > i.cfg.Timeout {
		i.slow = true // others may see that from now on
	}
	i.certainty.noteRenewing(d)
	i.mu.Unlock()
	if err := i.writeLease(ctx, i.cfg.Name, d.duration); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ready, i.slow = true, d.duration > i.cfg.Timeout
	i.certainty.noteRenewed(d, i.cfg.Clock.Now())
	return nil
}

// writeLease writes the Lease over the version that was written last, so that no write whose answer
// was lost can follow this one. The caller has the turn to write.
func (i *Instance) writeLease(ctx context.Context, holder string, duration time.Duration) (err error) {
	for range leaseTries {
		if err = i.tryWrite(ctx, holder, duration); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write lease %s: %w", i.cfg.Name, err)
	}
	return nil
}

// tryWrite is one attempt of writeLease. Without a version it creates the Lease, or reads it where
// there is one. After an error no version is known.
func (i *Instance) tryWrite(ctx context.Context, holder string, duration time.Duration) error {
	lease, before := i.newLease(holder, duration), i.version
	i.version = ""
	if before == "" {
		if holder != "" {
			err := i.cfg.Client.Create(ctx, lease)
			if !apierrors.IsAlreadyExists(err) {
				return i.noteWritten(lease, err)
			}
		}
		there := &coordinationv1.Lease{}
		if err := i.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(lease), there); err != nil {
			return err
		}
		lease, before = i.newLease(holder, duration), there.ResourceVersion
	}
	base := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.cfg.Namespace, Name: i.cfg.Name, ResourceVersion: before}}
	return i.noteWritten(lease, i.cfg.Client.Patch(ctx, lease, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
}

// noteWritten notes the version of the Lease if it was written.
func (i *Instance) noteWritten(lease *coordinationv1.Lease, err error) error {
	if err == nil {
		i.version = lease.ResourceVersion
	}
	return err
}

func (i *Instance) newLease(holder string, duration time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.cfg.Namespace, Name: i.cfg.Name, Labels: map[string]string{leaseLabel: leaseLabelValue},
			Annotations: map[string]string{holdfast.AnnotationAddress: i.cfg.Address},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(holder),
			LeaseDurationSeconds: ptr.To(leaseSeconds(duration)),
			RenewTime:            ptr.To(metav1.NewMicroTime(i.cfg.Clock.Now())),
		},
	}
}

// releaseLease releases the Lease: an instance that watches takes over at once.
func (i *Instance) releaseLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	i.mu.Lock()
	i.certainty.endCertainty()
	i.mu.Unlock()
	err := i.takeTurn(ctx)
	if err == nil {
		err = i.writeLease(ctx, "", i.cfg.Timeout)
		i.endTurn()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		i.cfg.Log.Warn("Failed to release instance Lease; other instances wait until it expires", "error", err)
	}
}

// IsInstance reports whether a Lease is of an instance of a service.
func IsInstance(lease *coordinationv1.Lease) bool { return lease.Labels[leaseLabel] == leaseLabelValue }

func (i *Instance) listLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	err := i.cfg.Reader.List(ctx, list, client.InNamespace(i.cfg.Namespace), client.MatchingLabels{leaseLabel: leaseLabelValue})
	return list.Items, err
}

// containsLease reports whether a list holds the Lease of that name at that version.
func containsLease(leases []coordinationv1.Lease, name, version string) bool {
	return slices.ContainsFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == name && l.ResourceVersion == version })
}

// sweepLeases deletes Leases of the long dead, exactly as they were seen.
func (i *Instance) sweepLeases(ctx context.Context, stale map[string]string) {
	for name, version := range stale {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.cfg.Namespace, Name: name}}
		err := i.cfg.Client.Delete(ctx, lease, client.Preconditions{ResourceVersion: &version})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			i.reportError(ctx, "Failed to delete the Lease of a dead instance; will retry", err)
		}
	}
}
