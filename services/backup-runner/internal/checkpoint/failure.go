package checkpoint

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// failureVersion is the format of failure records; another one is not understood.
const failureVersion = 1

// maxFailureBytes is far above what a reason takes.
const maxFailureBytes = 4 << 20

// Failure is why a backup failed. It is durable before any file that has it, so that every holder
// that publishes them publishes the same.
type Failure struct {
	// Reason is the failureReason of the Backup.
	Reason string `json:"reason"`
	// Time is when that was decided, in UTC.
	Time time.Time `json:"time"`
}

// failureRecord is the failure of a backup whose composition exists.
type failureRecord struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Failure
}

// RecordFailure makes f the failure of a backup whose composition exists and cannot be published, or
// returns the one that was recorded before.
func RecordFailure(ctx context.Context, store objectstore.Store, backup, uid string, f Failure) (Failure, error) {
	kind, check := failureOf(backup, uid)
	r, err := kind.Create(ctx, store, layout.Failure(backup, uid), failureRecord{FormatVersion: failureVersion, Backup: backup, UID: uid, Failure: f}, check)
	return r.Failure, err
}

// ReadFailure returns what RecordFailure recorded; the error wraps objectstore.ErrNotFound while
// there is nothing, ErrDamaged if it is not understood.
func ReadFailure(ctx context.Context, store objectstore.Reader, backup, uid string) (Failure, error) {
	kind, check := failureOf(backup, uid)
	r, err := kind.Read(ctx, store, layout.Failure(backup, uid), check)
	return r.Failure, err
}

func failureOf(backup, uid string) (journal.DocumentKind[failureRecord], func(*failureRecord) error) {
	kind := journal.DocumentKind[failureRecord]{Name: "failure of backup " + backup, MaxBytes: maxFailureBytes, MaxDecoded: 4 * maxFailureBytes}
	return kind, func(r *failureRecord) error {
		if r.FormatVersion != failureVersion {
			return unsupportedFormatError(r.FormatVersion)
		}
		return checkBelongs(backup, uid, r.Backup, r.UID)
	}
}
