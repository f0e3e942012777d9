package job

import (
	"context"
	"fmt"
	"slices"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// isFinalizing reports the phases of a restore whose operations have ended. Its objects are restored.
func isFinalizing(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseFinalizing || p == velerov1.RestorePhaseFinalizingPartiallyFailed
}

// hasBegun reports whether a restore in this phase may have a holder. Waiting* belongs to
// async-operation-monitor.
func hasBegun(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseInProgress || isFinalizing(p)
}

// Admit implements engine.Kind.
func (k *Kind) Admit(ctx context.Context, restore *velerov1.Restore) (engine.Decision[*velerov1.Restore], error) {
	if leftUnfinished(restore) {
		return k.admitForeign(ctx, restore)
	}
	phase := restore.Status.Phase
	if !phase.IsNew() && !hasBegun(phase) {
		return engine.NotNow[*velerov1.Restore]("nothing to do in phase " + string(phase)), nil
	}
	if isDryRun(restore) {
		return k.endDryRun(ctx, restore)
	}
	_, admitted, err := k.cfg.Ledger.Get(ctx, restore.UID)
	if err != nil {
		return engine.Decision[*velerov1.Restore]{}, fmt.Errorf("look the restore up in the ledger: %w", err)
	}
	if !admitted && !isFinalizing(phase) { // which writes nothing to the cluster
		return engine.NotNow[*velerov1.Restore]("not admitted yet"), nil
	}
	return engine.Claim[*velerov1.Restore](&restoreAttempt{kind: k, cfg: &k.cfg}), nil
}

// GiveUp implements engine.Kind. A restore that was begun is claimed to end by its records: what it
// began is cancelled, and what it paused is resumed.
func (k *Kind) GiveUp(restore *velerov1.Restore, reason error, claimable bool) engine.Decision[*velerov1.Restore] {
	phase := restore.Status.Phase
	switch {
	case !phase.IsNew() && !hasBegun(phase):
		return engine.NotNow[*velerov1.Restore]("nothing to do in phase " + string(phase))
	case claimable && hasBegun(phase):
		return engine.Claim[*velerov1.Restore](&restoreAttempt{kind: k, cfg: &k.cfg, givenUp: reason})
	}
	return k.endUnclaimed(velerov1.RestorePhaseFailed, reason)
}

// endUnclaimed ends a restore without a claim.
func (k *Kind) endUnclaimed(phase velerov1.RestorePhase, damage error) engine.Decision[*velerov1.Restore] {
	return engine.End(func(o *velerov1.Restore) error {
		o.Status.Phase = phase
		o.Status.CompletionTimestamp = k.cfg.currentTime()
		o.Status.FailureReason = damage.Error()
		o.Status.Errors = max(o.Status.Errors, 1)
		if mark.PausedLocation(o) != "" {
			o.Status.FailureReason += "; " + mark.PausedRemark
		}
		return nil
	}, func(ctx context.Context, o *velerov1.Restore) {
		k.cfg.Log.ErrorContext(ctx, "Restore failed", "restore", o.Name, "phase", phase, "error", damage)
		k.cfg.Metrics.EndedAs(o)
		k.cfg.Ended(ctx, o)
	})
}

// Claimed implements engine.Job.
func (a *restoreAttempt) Claimed(o *velerov1.Restore, _ claim.Claim) error {
	if !slices.Contains(o.Finalizers, velerov1.RestoreFinalizer) {
		o.Finalizers = append(o.Finalizers, velerov1.RestoreFinalizer)
	}
	before := mark.WaitsOf(o)
	before.For, before.More = nil, 0
	if err := mark.SetWaits(o, before); err != nil {
		return err
	}
	if o.Status.Phase.IsNew() {
		o.Status.Phase = velerov1.RestorePhaseInProgress
	}
	if o.Status.StartTimestamp == nil {
		o.Status.StartTimestamp = a.cfg.currentTime()
	}
	return nil
}
