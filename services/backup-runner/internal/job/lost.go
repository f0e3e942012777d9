package job

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// lostLimit bounds what is done for a backup whose claim was lost.
const lostLimit = 10 * time.Minute

// claimLoss is why the claim of a backup was lost.
type claimLoss int

const (
	lossTaken claimLoss = iota // another holder continues it, may, or has ended it and owes nothing
	lossEnded                  // it has ended without its runner: it is not completed
	lossGone                   // its object was deleted
)

// handleLostClaim does what no other holder does for a backup whose claim was lost: it runs the post hooks that
// are owed of one that ended without its runner or was deleted, and removes the CSI snapshots of a deleted
// one. Nothing is recorded. What is not done for a deleted one here is left to the sweep.
func (a *attempt) handleLostClaim() {
	ctx, done := engine.WithStopGrace(context.WithoutCancel(a.owned), a.Clock, a.held.Stopping().Done(), GracePeriod, engine.ErrStopped)
	defer done()
	ctx, stop := context.WithTimeout(ctx, lostLimit)
	defer stop()
	if len(a.opened.Pods()) == 0 && !a.mayHaveSnapshots() {
		return
	}
	why, err := a.readClaimLoss(ctx)
	if err != nil {
		a.held.Log.WarnContext(ctx, "Failed to read a backup whose claim was lost; leaving it to its next holder", "error", err)
	}
	if why == lossTaken {
		return
	}
	if err := a.runOpened(ctx, nil); err != nil {
		a.held.Log.ErrorContext(ctx, "Failed to run all post hooks of a backup whose claim was lost", "error", err)
	}
	// Another holder may have committed it before its object was deleted, unless this one held it until then.
	if why == lossGone && a.mayHaveSnapshots() && a.held.Confirm(ctx) == nil {
		a.discardSnapshots(ctx)
	}
}

// mayHaveSnapshots reports whether CSI snapshots may be in the cluster that only this backup has.
func (a *attempt) mayHaveSnapshots() bool {
	return a.CSI != nil && (a.collecting || !a.first) && !a.committing && !mark.IsCommitting(a.held.Object)
}

// readClaimLoss reads why the claim was lost.
func (a *attempt) readClaimLoss(ctx context.Context) (claimLoss, error) {
	b := &velerov1.Backup{}
	loop := a.callLoop(a.held.Log)
	loop.Budget = a.StorePatience
	err := loop.Do(ctx, "read the lost backup", func() error {
		return a.Reader.Get(ctx, client.ObjectKeyFromObject(a.held.Object), b)
	})
	if apierrors.IsNotFound(err) || err == nil && b.UID != a.held.Object.UID {
		return lossGone, nil
	}
	if err != nil {
		return lossTaken, err
	}
	if b.Status.Phase.Terminal() && mark.PostHooksOf(b).Owed { // else its holder ran them, and a later backup may have the Pods
		return lossEnded, nil
	}
	return lossTaken, nil
}

// discardSnapshots removes the CSI snapshots that the backup's own actions made, with what the drivers stored.
func (a *attempt) discardSnapshots(ctx context.Context) {
	owner := csisnapshot.Owner{Name: a.held.Object.Name, UID: a.held.Object.UID}
	if err := a.CSI.End(ctx, owner, func(types.NamespacedName) bool { return false }); err != nil {
		a.held.Log.ErrorContext(ctx, "Failed to delete the CSI snapshots of a deleted backup; they stay in the cluster", "label", velerov1.LabelBackupUID, "uid", owner.UID, "error", err)
	}
}
