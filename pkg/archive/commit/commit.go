// Package commit is how a backup ends in the bucket: by the creation of its metadata file, which
// decides the terminal phase. From the mark that package mark writes before it, a request to
// cancel comes too late.
package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ErrForeign means that the bucket holds a backup of that name which is not this Backup object's.
var ErrForeign = errors.New("backup already exists in object storage")

// Final returns what the metadata file has of a backup that ends at now.
func Final(b *velerov1.Backup, phase velerov1.BackupPhase, now time.Time) *velerov1.Backup {
	final := b.DeepCopy()
	delete(final.Annotations, holdfast.AnnotationCommitting)
	final.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	final.Status.Version = 1
	final.Status.FormatVersion = manifest.FormatVersion
	final.Status.Phase = phase
	final.Status.QueuePosition = 0
	if final.Status.HookStatus == nil {
		final.Status.HookStatus = &velerov1.HookStatus{} // Velero 1.18 writes it also when no hook ran
	}
	at := metav1.NewTime(now.Truncate(time.Second)) // the precision JSON keeps
	final.Status.CompletionTimestamp = &at
	return final
}

// Failed is Final of a backup that failed for that reason.
func Failed(b *velerov1.Backup, reason string, now time.Time) *velerov1.Backup {
	final := Final(b, velerov1.BackupPhaseFailed, now)
	final.Status.FailureReason = reason
	final.Status.Errors = max(final.Status.Errors, 1)
	return final
}

// Commit creates the metadata file: the one moment that decides. Should another holder have done so
// before, what it wrote stands and is returned, with false. The name must be reserved for this
// backup; ErrForeign if it is another's.
func Commit(ctx context.Context, store objectstore.Store, final *velerov1.Backup) (committed *velerov1.Backup, created bool, err error) {
	data, err := json.MarshalIndent(final, "", "    ")
	if err != nil {
		return nil, false, fmt.Errorf("encode the backup: %w", err)
	}
	err = objectstore.CreateBytes(ctx, store, layout.BackupMetadata(final.Name), data)
	if errors.Is(err, objectstore.ErrExists) {
		committed, found, err := Committed(ctx, store, final)
		if err == nil && !found {
			err = fmt.Errorf("%s was deleted while it was read", layout.BackupMetadata(final.Name))
		}
		return committed, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("commit the backup: %w", err)
	}
	return final, true, nil
}

// maxMetadataBytes is far above what an API server stores of one object.
const maxMetadataBytes = 16 << 20

// Committed returns the committed object of a backup, false while there is none, or ErrForeign if
// it is another Backup's.
func Committed(ctx context.Context, store objectstore.Reader, b *velerov1.Backup) (*velerov1.Backup, bool, error) {
	key := layout.BackupMetadata(b.Name)
	data, err := objectstore.ReadAll(ctx, store, key, maxMetadataBytes)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, false, nil
	case errors.Is(err, objectstore.ErrSize):
		return nil, true, ErrForeign
	case err != nil:
		return nil, false, fmt.Errorf("read %s: %w", key, err)
	}
	var committed velerov1.Backup
	if err := jsonlimit.Unmarshal(data, &committed, jsonlimit.Object); err != nil || committed.UID != b.UID {
		return nil, true, ErrForeign
	}
	return &committed, true, nil
}
