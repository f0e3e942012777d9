package job

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// isRefusal reports the error of a location that this process may not write.
func isRefusal(err error) bool {
	return errors.Is(err, objectstore.ErrReadOnly) || errors.Is(err, objectstore.ErrAccess)
}

// openRecordStore creates the owner file in the store that takes the records and files of the restore. That
// is the one of its backup, or of the mark. Where the backup's refuses the file, the first holder has the default location
// take its place, and marks that on the Restore before the first record. The error is the refusal where no location
// takes them.
func (in *restoreInputs) openRecordStore(ctx context.Context) error {
	refusal := in.createOwnerFile(ctx, in.recordStore)
	switch {
	case !isRefusal(refusal) || in.recordStore != in.store:
		return refusal
	case !in.isFresh():
		return fmt.Errorf("%w; the default location is not tried: records of an earlier attempt may be in that of the backup", refusal)
	}
	err := in.openDefault(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted):
		return err
	case err != nil:
		return fmt.Errorf("%w; the default location: %w", refusal, err)
	}
	in.log.InfoContext(ctx, "Location refuses the records and files of the restore; the default location takes them", "location", in.location, "default", in.recordsAt, "error", refusal)
	return in.writeMark(ctx, "mark the location of the files", func(o *velerov1.Restore) error { return mark.SetFilesLocation(o, in.recordsAt) })
}

// Why the default location is not tried.
var (
	errNotAnother  = errors.New("it is the location of the backup")
	errUnavailable = errors.New("it is unavailable")
)

// openDefault opens the default location for the records and files, and creates the owner file there.
func (in *restoreInputs) openDefault(ctx context.Context) error {
	var loc *velerov1.BackupStorageLocation
	err := in.retryCall(ctx, "find the default location", func() (err error) {
		loc, err = in.cfg.Locations.Default(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case loc.Name == in.location:
		return errNotAnother
	case loc.Status.Phase == velerov1.LocationPhaseUnavailable: // is not waited for
		return errUnavailable
	}
	if err = in.openElsewhere(ctx, loc.Name); err == nil {
		err = in.createOwnerFile(ctx, in.recordStore)
	}
	if err != nil {
		in.closeElsewhere()
	}
	return err
}

// openElsewhere opens another location than that of the backup for the records and files.
func (in *restoreInputs) openElsewhere(ctx context.Context, name string) error {
	store, _, err := in.openStore(ctx, name)
	if err == nil {
		in.recordsAt, in.recordStore = name, in.retryingStore(store)
	}
	return err
}

// closeElsewhere closes it again, if it is open.
func (in *restoreInputs) closeElsewhere() {
	if in.recordStore == in.store {
		return
	}
	if err := in.recordStore.Close(); err != nil {
		in.log.Warn("Failed to close the location of the files", "location", in.recordsAt, "error", err)
	}
	in.recordsAt, in.recordStore = in.location, in.store
}
