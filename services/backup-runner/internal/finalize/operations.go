package finalize

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// WaitingError ends the steps of a backup whose operations have not all ended: async-operation-
// monitor goes on with it, and a runner when they have.
type WaitingError struct {
	// Composition is what the backup consists of but for what the operations bring.
	Composition *checkpoint.Composition
	// Completed and Failed are how many operations have ended.
	Completed, Failed int
}

// Error implements error.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("%d of %d operations have not ended", len(e.Composition.Operations)-e.Completed-e.Failed, len(e.Composition.Operations))
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
	job := s.operationsOf()
	log, err := operation.Open(ctx, s.Store, job)
	if errors.Is(err, objectstore.ErrNotFound) {
		if err := s.Holder.Confirm(ctx); err != nil {
			return err
		}
		_, err = operation.Seal(ctx, s.Store, operation.List{Job: job, Epoch: s.Epoch, Operations: s.Composition.Operations})
		if err == nil {
			log, err = operation.Open(ctx, s.Store, job)
		}
	}
	if err != nil {
		return err
	}
	s.Operations = log
	if !log.Ended() {
		completed, failed := log.Count()
		return &WaitingError{Composition: s.Composition, Completed: completed, Failed: failed}
	}
	return nil
}

// storeAgain stores the items that operations named, as they are now that the operations have
// ended. Items of failed operations are among them, as in Velero 1.18.
func storeAgain(ctx context.Context, s *State) error {
	items := s.postOperation()
	if len(items) == 0 {
		return nil
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	fixed, err := checkpoint.FixedAgain(ctx, s.Store, name, uid)
	if errors.Is(err, objectstore.ErrNotFound) {
		var records []string
		if records, err = s.Again(ctx, items); err == nil {
			err = s.Holder.Confirm(ctx)
		}
		if err == nil {
			fixed, err = checkpoint.FixAgain(ctx, s.Store, checkpoint.Again{Backup: name, UID: uid, Epoch: s.Epoch, Checkpoints: records})
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

// noteOperations makes every failed operation an error of the backup.
func (s *State) noteOperations() {
	if s.Operations == nil {
		return
	}
	states := s.Operations.States()
	for i := range s.Operations.Operations() {
		op, state := &s.Operations.Operations()[i], &states[i]
		if state.Phase != operation.Failed {
			continue
		}
		s.plan.Notes = append(s.plan.Notes, joblog.Entry{
			Time: state.EndTime, Level: joblog.Error, Source: "holdfast/backup-runner", Scoped: true,
			Namespace: op.Item.Namespace, Resource: op.Item.GroupResource(), Name: op.Item.Name,
			Message: fmt.Sprintf("operation %q of action %s failed", op.ID, op.Action), Err: state.Error,
		})
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
	err = itemoperation.Encode(g.zip, s.operationsOf(), s.Operations.Operations(), s.Operations.States())
	f, closeErr := g.close()
	if err := errors.Join(err, closeErr); err != nil {
		remove(part.File{Path: path})
		return part.File{}, fmt.Errorf("write the file of operations: %w", err)
	}
	return f, nil
}

// listOperations lists the operations of a backup that fails, as far as they are known: delete item
// actions find by them what was made outside.
func listOperations(ctx context.Context, s *State) error {
	log, err := operation.Open(ctx, s.Store, s.operationsOf())
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil
	case errors.Is(err, operation.ErrDamaged):
		s.Log.WarnContext(ctx, "operations of the failed backup not listed", "error", err)
		return nil
	case err != nil:
		return err
	}
	s.Operations = log
	file, err := s.operationsFile()
	if err != nil {
		return err
	}
	defer remove(file)
	return s.createOnce(ctx, layout.BackupItemOperations(s.Backup.Name), file.Path)
}
