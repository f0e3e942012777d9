package pausing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// ErrNoRecords means that what a restore paused is no longer known.
var ErrNoRecords = errors.New("there are no records")

// Locations opens the stores of backups; location.Opener is one.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// readLimit bounds the reading of a restore's records.
const readLimit = 30 * time.Second

// batch is of no effect: the outcome of a resumption is not recorded, since another one comes to
// the same end.
const batch = 1000

// Resumer resumes what restores left paused. Safe for concurrent use.
type Resumer struct {
	Locations Locations
	// REST is the cluster restored to.
	REST  *rest.Config
	Clock clock.WithTicker
}

// Resume resumes what a restore left paused, with its records in the location of that name, and
// returns the names of those objects that are still paused. An error means that there may be more.
// confirm is called before each change of the cluster, which is not made after an error; nil allows
// all.
func (r *Resumer) Resume(ctx context.Context, o *velerov1.Restore, location string, confirm func(context.Context) error) ([]string, error) {
	recorder := outcome.NewRecorder(outcome.NewLog(io.Discard, o.Name), r.Clock, batch, "")
	unread := LoadFrom(ctx, r.Locations, o, location, recorder)
	objects := Objects{UID: o.UID, Recorder: recorder, REST: r.REST, Clock: r.Clock, Confirm: confirm}
	err := objects.Resume(ctx)
	return Names(recorder), errors.Join(unread, err, recorder.Close())
}

// LoadFrom is LoadUnfinished with the records in the location of that name. It takes no longer than
// readLimit.
func LoadFrom(ctx context.Context, locations Locations, o *velerov1.Restore, location string, recorder *outcome.Recorder) (err error) {
	ctx, stop := context.WithTimeout(ctx, readLimit)
	defer stop()
	loc, err := locations.Get(ctx, location)
	if err != nil {
		return fmt.Errorf("open location %q: %w", location, err)
	}
	store, err := locations.Open(ctx, loc)
	if err != nil {
		return fmt.Errorf("open location %q: %w", location, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return LoadUnfinished(ctx, store, o, recorder)
}

// LoadUnfinished loads into a recorder what is paused, and which operations were begun, from the
// records of a restore. It reads all that it can: an error means that there may be more.
func LoadUnfinished(ctx context.Context, store objectstore.Reader, o *velerov1.Restore, recorder *outcome.Recorder) error {
	dir := layout.RestoreRecords(o.Name, string(o.UID))
	var keys []string
	err := store.List(ctx, dir+outcome.FilePrefix, func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err == nil && len(keys) == 0 {
		err = ErrNoRecords
	}
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("list the records of the restore: %w", err))
	}
	for _, key := range keys {
		if err := loadRecord(ctx, store, key, recorder); err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", strings.TrimPrefix(key, dir), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func loadRecord(ctx context.Context, store objectstore.Reader, key string, recorder *outcome.Recorder) error {
	data, err := journal.Read(ctx, store, key)
	if err != nil || journal.IsClosing(data) {
		return err
	}
	return recorder.LoadUnfinished(data)
}

// Names are those of the objects that a recorder has as paused.
func Names(recorder *outcome.Recorder) []string {
	var names []string
	for _, p := range recorder.Paused() {
		names = append(names, p.Name())
	}
	return names
}
