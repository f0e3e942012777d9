package finalize

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// operationEnds returns how the operations of an action ended, by their identifiers.
func (s *State) operationEnds(action string) map[string]operation.State {
	if s.Operations == nil {
		return nil
	}
	ends, states := map[string]operation.State{}, s.Operations.States()
	for i := range s.Operations.Operations() {
		if op := &s.Operations.Operations()[i]; op.Action == action {
			ends[op.ID] = states[i]
		}
	}
	return ends
}

// countSnapshots returns how many CSI snapshots are in the backup, and how many of them are ready.
func (s *State) countSnapshots() (attempted, completed int) {
	for _, end := range s.operationEnds(csisnapshot.NameSnapshot) {
		attempted++
		if end.Phase == operation.Completed {
			completed++
		}
	}
	return attempted, completed
}

// errUnlisted means that a backup which did not fail has no list of operations with the snapshots
// that it names.
var errUnlisted = errors.New("the backup has no list of operations")

// endSnapshots removes the objects of the backup's CSI snapshots from the cluster. What the drivers
// stored stays where the backup names it, and goes with a backup that failed. The snapshots of a
// backup without a list are left alone, such as one that another server stored. A cluster that
// refuses the removal does not keep the backup from its end: its deletion removes what is left.
func endSnapshots(ctx context.Context, s *State) error {
	if s.Snapshots == nil {
		return nil
	}
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	stored, err := s.storedSnapshots(ctx)
	if errors.Is(err, errUnlisted) {
		s.Log.InfoContext(ctx, "Leaving the objects of CSI snapshots to the deletion of the backup", "reason", err)
		return nil
	}
	if err == nil {
		err = s.Snapshots.End(ctx, csisnapshot.Owner{Name: s.Backup.Name, UID: s.Backup.UID}, func(name types.NamespacedName) bool { return stored[name] })
	}
	if err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "Failed to delete the objects of CSI snapshots; the deletion of the backup removes them", "error", err)
		return nil
	}
	return err
}

// listedOperations returns the operations of a backup that did not fail; nil where it has none. The error is
// errUnlisted where there is neither a list nor a composition without operations.
func (s *State) listedOperations(ctx context.Context) (*operation.Log, error) {
	if s.Operations != nil || s.Composition != nil && len(s.Composition.Operations) == 0 {
		return s.Operations, nil
	}
	log, err := operation.Open(ctx, s.Store, s.operationsOf())
	if !errors.Is(err, objectstore.ErrNotFound) {
		return log, err
	}
	if s.Composition != nil {
		return nil, errUnlisted
	}
	c, err := checkpoint.ReadComposition(ctx, s.Store, s.Backup.Name, string(s.Backup.UID)) // committed by an earlier holder
	switch {
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, checkpoint.ErrDamaged), err == nil && len(c.Operations) > 0:
		return nil, errUnlisted
	}
	return nil, err
}

// storedSnapshots returns the snapshots that the backup names; the error is errUnlisted where that is
// not known.
func (s *State) storedSnapshots(ctx context.Context) (map[types.NamespacedName]bool, error) {
	if s.Final.Status.Phase == velerov1.BackupPhaseFailed {
		return nil, nil
	}
	log, err := s.listedOperations(ctx)
	if log == nil || err != nil {
		return nil, err
	}
	stored := map[types.NamespacedName]bool{}
	for i := range log.Operations() {
		if op := &log.Operations()[i]; op.Action == csisnapshot.NameSnapshot {
			stored[types.NamespacedName{Namespace: op.Item.Namespace, Name: op.Item.Name}] = true
		}
	}
	return stored, nil
}
