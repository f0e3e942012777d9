package job

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
)

// lostLimit bounds what is done for a backup whose claim was lost.
const lostLimit = 10 * time.Minute

// fate is what became of a backup whose claim was lost.
type fate int

const (
	taken fate = iota // another holder goes on with it, or may
	ended             // it has ended, or was asked to: it is not completed
	gone              // its object was deleted
)

// lost does what no other holder does for a backup whose claim was lost: it runs the post hooks that
// are owed of one that ended, is asked to, or was deleted, and removes the CSI snapshots of a deleted
// one. Nothing is recorded.
func (a *attempt) lost() {
	ctx, done := engine.Until(context.WithoutCancel(a.owned), a.Clock, a.held.Stopping().Done(), GracePeriod, engine.ErrStopped)
	defer done()
	ctx, stop := context.WithTimeout(ctx, lostLimit)
	defer stop()
	if len(a.opened.Pods()) == 0 && !a.mayHaveSnapshots() {
		return
	}
	became, err := a.fate(ctx)
	if err != nil {
		a.held.Log.WarnContext(ctx, "what became of a lost backup is not known, it is left to its next holder", "error", err)
	}
	if became == taken {
		return
	}
	if err := a.runOpened(ctx, nil); err != nil {
		a.held.Log.ErrorContext(ctx, "post hooks of a lost backup did not all run", "error", err)
	}
	if became == gone && a.mayHaveSnapshots() {
		a.discard(ctx)
	}
}

// mayHaveSnapshots reports whether CSI snapshots may be in the cluster that only this backup has.
func (a *attempt) mayHaveSnapshots() bool {
	return a.CSI != nil && (a.collecting || !a.first) && !a.committing && !cancel.Committing(a.held.Object)
}

// fate reads what became of the backup.
func (a *attempt) fate(ctx context.Context) (fate, error) {
	b := &velerov1.Backup{}
	loop := a.calls(a.held.Log)
	loop.Budget = a.StorePatience
	err := loop.Do(ctx, "read the lost backup", func() error {
		return a.Reader.Get(ctx, client.ObjectKeyFromObject(a.held.Object), b)
	})
	if apierrors.IsNotFound(err) || err == nil && b.UID != a.held.Object.UID {
		return gone, nil
	}
	if err != nil {
		return taken, err
	}
	if _, asked := cancel.Requested(b); asked && !cancel.Committing(b) || b.Status.Phase.Terminal() {
		return ended, nil
	}
	return taken, nil
}

// discard removes the CSI snapshots that the backup's own actions made, with what the drivers stored.
func (a *attempt) discard(ctx context.Context) {
	owner := csisnapshot.Owner{Name: a.held.Object.Name, UID: a.held.Object.UID}
	if err := a.CSI.End(ctx, owner, func(types.NamespacedName) bool { return false }); err != nil {
		a.held.Log.ErrorContext(ctx, "CSI snapshots of a deleted backup stay in the cluster", "label", velerov1.LabelBackupUID, "uid", owner.UID, "error", err)
	}
}
