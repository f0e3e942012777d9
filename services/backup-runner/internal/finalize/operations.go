package finalize

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// WaitingError ends the steps of a backup whose operations have not all ended: async-operation-
// monitor continues with it, and a runner when they have.
type WaitingError struct {
	// Composition is what the backup consists of but for what the operations bring.
	Composition *checkpoint.Composition
	// Attempted is how many operations there are, Completed and Failed how many of them have ended.
	Attempted, Completed, Failed int
}

// Error implements error.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("%d of %d operations have not ended", e.Attempted-e.Completed-e.Failed, e.Attempted)
}

func (s *State) operationsOf() operation.Job {
	return operation.Job{Kind: operation.KindBackup, Name: s.Backup.Name, UID: string(s.Backup.UID)}
}

// awaitOperations seals the operations that the composition names and ends the steps with a
// *WaitingError until all of them have ended. Without operations it reads nothing.
func awaitOperations(ctx context.Context, s *State) error {
	if len(s.Composition.Operations) == 0 {
		return nil
	}
	log, err := operation.Open(ctx, s.Store, s.operationsOf())
	if errors.Is(err, objectstore.ErrNotFound) {
		log, err = s.sealOperations(ctx)
	}
	if err != nil {
		return err
	}
	s.Operations = log
	if log.Ended() {
		return nil
	}
	completed, failed := log.Count()
	return &WaitingError{Composition: s.Composition, Attempted: len(log.Operations()), Completed: completed, Failed: failed}
}

// sealOperations stores the list of the operations of the backup, and opens their records.
func (s *State) sealOperations(ctx context.Context) (*operation.Log, error) {
	if err := s.Holder.Confirm(ctx); err != nil {
		return nil, err
	}
	l := operation.List{Job: s.operationsOf(), Epoch: s.Epoch, Operations: s.Composition.Operations}
	if _, err := operation.Seal(ctx, s.Store, l); err != nil {
		return nil, err
	}
	return operation.Open(ctx, s.Store, l.Job)
}

// endOperations cancels the operations of a backup that fails, which does not wait for their ends. What a
// call began whose answer is in no record is not known.
func endOperations(ctx context.Context, s *State) error {
	s.cancelRequests(ctx)
	log, err := operation.Open(ctx, s.Store, s.operationsOf())
	if errors.Is(err, objectstore.ErrNotFound) {
		begun := operation.Unique(s.begun)
		if len(begun) == 0 {
			return nil
		}
		log, err = operation.NewLog(s.operationsOf(), begun), nil
	}
	if errors.Is(err, operation.ErrDamaged) {
		s.Log.WarnContext(ctx, "Failed to list the operations of the failed backup; they may still be running", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.Operations = log
	return s.Canceller.CancelOpen(ctx, log, s.Backup, "the backup failed: "+s.Failure.Reason)
}

// keepBegun keeps what calls began, as a record has it.
func (s *State) keepBegun(rec *checkpoint.Record) {
	for i := range rec.Outcomes {
		if o := &rec.Outcomes[i]; o.Begun != nil {
			s.begun = append(s.begun, *o.Begun)
		}
	}
}

// storeItemsAgain stores the items that operations named, as they are now that the operations have
// ended. Items of failed operations are among them, as in Velero 1.18.
func storeItemsAgain(ctx context.Context, s *State) error {
	items := s.postOperation()
	if len(items) == 0 {
		return nil
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	fixed, err := checkpoint.ReadPostOperationParts(ctx, s.Store, name, uid)
	if errors.Is(err, objectstore.ErrNotFound) {
		var records []string
		if records, err = s.Again(ctx, s.Composition.Namespaces, items); err == nil {
			err = s.Holder.Confirm(ctx)
		}
		if err == nil {
			fixed, err = checkpoint.RecordPostOperationParts(ctx, s.Store, checkpoint.PostOperationParts{Backup: name, UID: uid, Epoch: s.Epoch, Checkpoints: records})
		}
	}
	if err != nil {
		return fmt.Errorf("store again what operations changed: %w", err)
	}
	s.later = fixed.Checkpoints
	return nil
}

// postOperation returns the items that operations named, each once.
func (s *State) postOperation() []operation.Resource {
	if s.Operations == nil {
		return nil
	}
	seen := map[operation.Resource]struct{}{}
	var out []operation.Resource
	for i := range s.Operations.Operations() {
		for _, item := range s.Operations.Operations()[i].PostOperation {
			if _, twice := seen[item]; !twice {
				seen[item] = struct{}{}
				out = append(out, item)
			}
		}
	}
	return out
}

// operationNotes makes every failed operation an error of the backup, or each of its volumes.
func (s *State) operationNotes() (notes []joblog.Entry) {
	if s.Operations == nil {
		return nil
	}
	states := s.Operations.States()
	for i := range s.Operations.Operations() {
		op, state := &s.Operations.Operations()[i], &states[i]
		if state.Phase != operation.Failed {
			continue
		}
		volumes := s.podVolumeNotes(op, state)
		if len(volumes) == 0 {
			volumes = []joblog.Entry{failureOf(op, state)}
		}
		notes = append(notes, volumes...)
	}
	return notes
}

// failureOf is the error of a failed operation.
func failureOf(op *operation.Operation, state *operation.State) joblog.Entry {
	return joblog.Entry{
		Time: state.EndTime, Level: joblog.Error, Source: "holdfast/backup-runner", Scoped: true,
		Namespace: op.Item.Namespace, Resource: op.Item.GroupResource(), Name: op.Item.Name,
		Message: fmt.Sprintf("operation %q of action %s failed", op.ID, op.Action), Err: state.Error,
	}
}

// operationsFile is the file of the backup's operations.
func (s *State) operationsFile() (part.File, error) {
	path := filepath.Join(s.Dir, "list.json.gz")
	if s.Operations == nil {
		return jsonFile(path, []byte("[]\n"))
	}
	g, err := createGzip(path)
	if err != nil {
		return part.File{}, err
	}
	err = operation.EncodeFile(g.zip, s.operationsOf(), s.Operations.Operations(), s.Operations.States())
	f, closeErr := g.close()
	if err := errors.Join(err, closeErr); err != nil {
		removeFiles(part.File{Path: path})
		return part.File{}, fmt.Errorf("write the file of operations: %w", err)
	}
	return f, nil
}

// listOperations lists the operations of a backup that fails: delete item actions find by them what
// was made outside.
func listOperations(ctx context.Context, s *State) error {
	if s.Operations == nil {
		return nil
	}
	file, err := s.operationsFile()
	if err != nil {
		return err
	}
	defer removeFiles(file)
	return s.createOnce(ctx, layout.BackupItemOperations(s.Backup.Name), file.Path)
}
