package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// tarballDir is where, in its work directory, a restore keeps what it needs of the tarball.
const tarballDir = "tarball"

// restoreInputs are what a restore is made of, and where it writes what becomes of it. close releases
// those that were opened.
type restoreInputs struct {
	*session
	backup   *velerov1.Backup
	location string            // of the backup
	store    *retrystore.Store // of the location
	readOnly bool              // the access mode of the location
	// recordsAt is the location with the records and files, recordStore its store.
	recordsAt   string
	recordStore *retrystore.Store
	dir         string // the work directory
	files       *workFiles
	recorder    *outcome.Recorder
	records     *outcomeRecords
	// lowerMemoryLimit undoes that the process was allowed memory for the plan; nil before.
	lowerMemoryLimit func()
	// operations are those that actions began, once they are sealed; nil while there are none.
	operations *operation.Log
	// unknown is the damage of the list of operations.
	unknown error
}

func newInputs(s *session, dir string) *restoreInputs {
	return &restoreInputs{session: s, dir: filepath.Join(s.cfg.WorkDir, dir)}
}

// findBackup reads the backup and its location. Where objects may be paused the location is the one
// that holds their records, and an error about the backup counts once these are open.
func findBackup(ctx context.Context, a *restoreAttempt) error {
	err := a.inputs.findLocation(ctx)
	if backup := a.inputs.backup; backup != nil && a.isFresh() {
		a.cfg.Metrics.Begun(a.inputs.schedule())
	}
	if err == nil || a.inputs.location == "" || ctx.Err() != nil {
		return err
	}
	a.misplaced = err
	return nil
}

func (in *restoreInputs) findLocation(ctx context.Context) (err error) {
	in.location = in.paused.Location
	if in.backup, err = in.readBackup(ctx); err != nil {
		return err
	}
	switch at := in.backup.Spec.StorageLocation; {
	case in.location == "", in.location == at, mark.FilesLocation(in.restore) != "":
		in.location = at
	default:
		return fatalErrorf("spec.backupName: backup %q is in location %q, and was in %q when the restore began", in.backup.Name, at, in.location)
	}
	return nil
}

// schedule is that of the backup, for metrics.
func (in *restoreInputs) schedule() string {
	if in.backup == nil {
		return ""
	}
	return in.backup.Labels[velerov1.LabelScheduleName]
}

// openBucket opens the location and the work directory.
func openBucket(ctx context.Context, a *restoreAttempt) error {
	return a.openingError(a.inputs.openBucket(ctx))
}

func (in *restoreInputs) openBucket(ctx context.Context) (err error) {
	store, mode, err := in.openStore(ctx, in.location)
	if err != nil {
		return err
	}
	in.readOnly = mode == velerov1.LocationModeReadOnly
	in.store = in.retryingStore(store)
	in.recordsAt, in.recordStore = in.location, in.store
	if at := mark.FilesLocation(in.restore); at != "" && at != in.location {
		if err := in.openElsewhere(ctx, at); err != nil {
			return err
		}
	}
	if err := emptyDir(in.dir, tarballDir); err != nil {
		return err
	}
	if in.files, err = newFiles(in.dir, in.restore); err != nil {
		return fatalErrorf("prepare the work directory: %w", err)
	}
	in.recorder = outcome.NewRecorder(in.files.log, in.cfg.Clock, in.cfg.RecordBatch, in.dir)
	return nil
}

// openRecords makes the records this holder's, and reads what earlier holders sealed.
func openRecords(ctx context.Context, a *restoreAttempt) (err error) {
	in := a.inputs
	if in.records, err = newRecords(ctx, in); err == nil {
		err = in.readSealed(ctx)
	}
	return a.openingError(err)
}

// openingError is the error of a step that opens: where the backup cannot be restored from and what is
// paused cannot be read either, the first is the failure.
func (a *restoreAttempt) openingError(err error) error {
	if err != nil && a.misplaced != nil && isFatal(err) {
		return a.misplaced
	}
	return err
}

// checkRestorable ends a restore that cannot be continued, or may not begin: the data of its backup is
// being removed. The backup was read after the claim was written, and a deletion looks for restores
// in progress after it has marked the backup: one of the two detects the other. A deletion waits for a
// restore that an earlier holder has begun, which is therefore continued.
func checkRestorable(_ context.Context, a *restoreAttempt) error {
	switch {
	case a.misplaced != nil:
		return a.misplaced
	case a.givenUp != nil:
		return &fatalError{a.givenUp}
	case a.inputs.backup.Status.Phase == velerov1.BackupPhaseDeleting && a.inputs.records.head.Planned == nil:
		return fatalErrorf("spec.backupName: backup %q is being deleted", a.inputs.backup.Name)
	}
	return nil
}

// outcomeCounts is how far the restore is; nil where that is not known.
func (in *restoreInputs) outcomeCounts() *outcome.Counts {
	if in.records == nil || !in.records.replayed.Load() {
		return nil
	}
	counts := in.recorder.Counts()
	return &counts
}

// readBackup reads the Backup that is restored from.
func (s *session) readBackup(ctx context.Context) (*velerov1.Backup, error) {
	name := s.restore.Spec.BackupName
	if name == "" {
		return nil, fatalErrorf("spec.backupName: is empty")
	}
	backup := &velerov1.Backup{}
	what := fmt.Sprintf("read backup %q", name)
	err := s.retryCall(ctx, what, func() error {
		return s.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: s.cfg.Namespace, Name: name}, backup)
	})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, unlessAway(err, what)
	}
	return backup, nil
}

// emptyDir makes an empty work directory with a directory in it, which may be "".
func emptyDir(dir, sub string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, sub), 0o700)); err != nil {
		return fatalErrorf("prepare the work directory: %w", err)
	}
	return nil
}

// close releases everything. Nothing that is left depends on it: what fails is logged.
func (in *restoreInputs) close() {
	var errs []error
	if in.recorder != nil {
		errs = append(errs, in.recorder.Close())
	}
	if in.lowerMemoryLimit != nil {
		in.lowerMemoryLimit()
	}
	if in.files != nil {
		in.files.close()
	}
	if in.store != nil {
		errs = append(errs, os.RemoveAll(in.dir), in.store.Close())
	}
	in.closeElsewhere()
	if err := errors.Join(errs...); err != nil {
		in.log.Warn("Failed to close the location or remove the work directory", "error", err)
	}
}

// openStore returns the store of a location, and its access mode. The API server is waited for while the claim lasts,
// the bucket only for the configured patience: an error that seems to be the network's may be
// permanent, such as a wrong name or an unknown certificate.
func (s *session) openStore(ctx context.Context, name string) (store objectstore.Store, mode velerov1.BackupStorageLocationAccessMode, err error) {
	var since time.Time // the first failure of the bucket
	err = s.retryCall(ctx, "open a location", func() error {
		if s.held != nil {
			if err := s.checkPresent(ctx); err != nil {
				return err
			}
		}
		loc, err := s.cfg.Locations.Get(ctx, name)
		if err != nil {
			return unlessAway(err, "open a location")
		}
		mode = loc.Spec.AccessMode
		store, err = s.cfg.Locations.Open(ctx, loc)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if since.IsZero() {
			since = s.cfg.Clock.Now()
		}
		if !kube.IsTransient(err) || s.cfg.Clock.Since(since) > s.cfg.StorePatience {
			return fatalErrorf("open location %q: %w", name, err)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	return store, mode, err
}
