package remove

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxMetadata bounds velero-backup.json: an API server takes no object over about 3 MiB.
const maxMetadata = 8 << 20

// ownsDirectory reports whether the directory holds this Backup's data. A backup that failed because its
// name was taken in the bucket must not take the other one's data with it, and a synced object has
// another UID than the file it came from. stored is velero-backup.json, nil where there is none
// that can be read.
func ownsDirectory(ctx context.Context, store objectstore.Store, j *deletionJob) (own bool, stored *velerov1.Backup, err error) {
	b := j.backup
	data, err := objectstore.ReadAll(ctx, store, layout.BackupMetadata(b.Name), maxMetadata)
	if errors.Is(err, objectstore.ErrNotFound) {
		own, err = isReserved(ctx, store, j)
		return own, nil, err
	}
	if err != nil {
		return false, nil, err
	}
	stored = &velerov1.Backup{}
	if err := jsonlimit.Unmarshal(data, stored, jsonlimit.Object); err != nil {
		if own, rerr := isReserved(ctx, store, j); own || rerr != nil {
			return own, nil, rerr
		}
		return false, nil, fmt.Errorf("velero-backup.json is damaged and the directory was reserved by another Backup: %w", err)
	}
	return stored.UID == b.UID || !j.resumed && isSameRun(&stored.Status, &b.Status), stored, nil
}

// isSameRun distinguishes a synced object from one of another cluster with the same name: schedules
// of two clusters start in the same second, and the one that found the name taken ended at another
// time or with another reason.
func isSameRun(a, b *velerov1.BackupStatus) bool {
	return a.StartTimestamp.Equal(b.StartTimestamp) && a.CompletionTimestamp.Equal(b.CompletionTimestamp) && a.FailureReason == b.FailureReason
}

// isReserved reports whether no other backup reserved the directory. Without an owner file it is what
// Velero left of this backup, as long as its object is there.
func isReserved(ctx context.Context, store objectstore.Store, j *deletionJob) (bool, error) {
	data, err := objectstore.ReadAll(ctx, store, layout.OwnerFile(j.backup.Name), layout.MaxOwnerBytes)
	if errors.Is(err, objectstore.ErrNotFound) {
		return !j.resumed, nil
	}
	if err != nil {
		return false, err
	}
	owner, err := layout.DecodeOwner(data)
	return err == nil && owner.BackupUID == string(j.backup.UID), err
}
