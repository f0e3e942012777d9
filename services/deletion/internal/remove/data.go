package remove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// deletes is how many objects are deleted at once.
	deletes = 16
	// rounds bounds how often the directory is listed again, should something still write to it.
	rounds = 3
	// shown is how many failed objects an error names.
	shown = 3
	// maxMetadata bounds velero-backup.json: an API server takes no object over about 3 MiB.
	maxMetadata = 8 << 20
)

// removeData empties the backup's directory if it is this backup's; velero-backup.json, by which a backup is known to exist, is
// the last object to go.
func (r *Remover) removeData(ctx context.Context, j *job) (err error) {
	if j.location == nil {
		return nil
	}
	store, err := r.Locations.Open(ctx, j.location)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	own, err := owns(ctx, store, j.backup)
	if err != nil {
		return err
	}
	if !own {
		r.Log.Info("the data under the backup's name is another backup's and stays", "backup", j.backup.Name, "location", j.location.Name)
		return nil
	}
	marker := layout.BackupMetadata(j.backup.Name)
	for range rounds {
		left, err := empty(ctx, store, layout.BackupDir(j.backup.Name), marker)
		if err != nil {
			return err
		}
		if !left {
			return store.Delete(ctx, marker)
		}
	}
	return errors.New("objects keep being written to the backup's directory")
}

// empty deletes everything under dir but the marker, and tells whether there was anything.
func empty(ctx context.Context, store objectstore.Store, dir, marker string) (found bool, err error) {
	var failed failures
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(deletes)
	err = store.List(ctx, dir, func(i objectstore.Info) error {
		if i.Key == marker {
			return nil
		}
		found = true
		group.Go(func() error {
			if err := store.Delete(gctx, i.Key); err != nil {
				failed.add(err)
			}
			return nil
		})
		return gctx.Err()
	})
	return found, errors.Join(err, group.Wait(), failed.err())
}

// failures collects errors of objects; the rest is deleted all the same.
type failures struct {
	mu    sync.Mutex
	first []error
	count int
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; len(f.first) < shown {
		f.first = append(f.first, err)
	}
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if more := f.count - len(f.first); more > 0 {
		return fmt.Errorf("%w (and %d more objects)", errors.Join(f.first...), more)
	}
	return errors.Join(f.first...)
}

// owns tells whether the directory holds this Backup's data. A backup that failed because its name was taken in the bucket must
// not take the other one's data with it, and a synced object has another UID than the file it came from.
func owns(ctx context.Context, store objectstore.Store, b *velerov1.Backup) (bool, error) {
	data, err := objectstore.ReadAll(ctx, store, layout.BackupMetadata(b.Name), maxMetadata)
	if errors.Is(err, objectstore.ErrNotFound) {
		return reserved(ctx, store, b)
	}
	if err != nil {
		return false, err
	}
	var stored velerov1.Backup
	if err := json.Unmarshal(data, &stored); err != nil {
		if own, rerr := reserved(ctx, store, b); own || rerr != nil {
			return own, rerr
		}
		return false, fmt.Errorf("velero-backup.json is damaged and the directory was reserved by another Backup: %w", err)
	}
	return stored.UID == b.UID || sameRun(&stored.Status, &b.Status), nil
}

// sameRun tells a synced object from one of another cluster that only has the name: schedules of two clusters start in the same
// second, and the one that found the name taken ended at another time or with another reason.
func sameRun(a, b *velerov1.BackupStatus) bool {
	return a.StartTimestamp.Equal(b.StartTimestamp) && a.CompletionTimestamp.Equal(b.CompletionTimestamp) && a.FailureReason == b.FailureReason
}

// reserved tells whether nobody else reserved the directory. Without an owner file it is what Velero, or a deletion cut short,
// left of this backup.
func reserved(ctx context.Context, store objectstore.Store, b *velerov1.Backup) (bool, error) {
	data, err := objectstore.ReadAll(ctx, store, layout.OwnerFile(b.Name), layout.MaxOwnerBytes)
	if errors.Is(err, objectstore.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	owner, err := layout.DecodeOwner(data)
	return err == nil && owner.BackupUID == string(b.UID), err
}
