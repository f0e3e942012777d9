package job

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// object names a restore.
func (r *Runner) object(name string, uid types.UID) *velerov1.Restore {
	return &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: name, UID: uid}}
}

// take claims a restore in one write, with phase and start time.
func (r *Runner) take(ctx context.Context, name string, uid types.UID) (*velerov1.Restore, claim.Claim, error) {
	_, admitted, err := r.cfg.Ledger.Get(ctx, uid)
	if err != nil {
		return nil, claim.Claim{}, fmt.Errorf("look the restore up in the ledger: %w", err)
	}
	var mine claim.Claim
	restore := r.object(name, uid)
	err = kube.Update(ctx, r.cfg.Reader, r.cfg.Client, restore, func(o *velerov1.Restore) error {
		switch {
		case o.DeletionTimestamp != nil, !open(o.Status.Phase):
			return errNothing
		case !admitted && !finalizing(o.Status.Phase): // which writes nothing to the cluster
			return errNotAdmitted
		}
		if err := readable(o); err != nil {
			return err
		}
		taken, err := r.cfg.Claims.Take(o)
		if err != nil {
			return err
		}
		mine = taken
		if !slices.Contains(o.Finalizers, velerov1.RestoreFinalizer) {
			o.Finalizers = append(o.Finalizers, velerov1.RestoreFinalizer)
		}
		if o.Status.Phase.IsNew() {
			o.Status.Phase = velerov1.RestorePhaseInProgress
		}
		if o.Status.StartTimestamp == nil {
			o.Status.StartTimestamp = r.now()
		}
		return claim.Set(o, mine)
	})
	return restore, mine, err
}

func (r *Runner) now() *metav1.Time {
	t := metav1.NewTime(r.cfg.Clock.Now())
	return &t
}

// release hands a restore over: whoever sees it next may take it at once. It is the last thing done with it here.
func (r *Runner) release(ctx context.Context, restore *velerov1.Restore, mine claim.Claim) {
	err := kube.Update(ctx, r.cfg.Reader, r.cfg.Client, r.object(restore.Name, restore.UID), func(o *velerov1.Restore) error {
		if err := claim.Check(o, mine); err != nil {
			return err
		}
		return claim.Release(o)
	})
	if err != nil {
		r.cfg.Log.Warn("restore not handed over; another runner takes it after the claim timeout", "restore", restore.Name, "error", err)
	}
}
