package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// failureVersion is the format of failure records; another one is not understood.
const failureVersion = 1

// maxFailureBytes is far above what a reason takes.
const maxFailureBytes = 4 << 20

// Failure is the verdict that a backup failed. It is durable before any file that tells it, so that
// every holder who publishes them publishes the same.
type Failure struct {
	// Reason is the failureReason of the Backup.
	Reason string `json:"reason"`
	// Time is when the verdict was reached, in UTC.
	Time time.Time `json:"time"`
}

// failureRecord is the verdict on a backup whose composition exists.
type failureRecord struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Failure
}

// Condemn makes f the verdict on a backup whose composition cannot be published, or returns the
// verdict that was reached before.
func Condemn(ctx context.Context, store objectstore.Store, backup, uid string, f Failure) (Failure, error) {
	data, err := json.Marshal(failureRecord{FormatVersion: failureVersion, Backup: backup, UID: uid, Failure: f})
	if err != nil {
		return Failure{}, fmt.Errorf("encode failure: %w", err)
	}
	err = objectstore.CreateBytes(ctx, store, layout.Failure(backup, uid), data)
	if errors.Is(err, objectstore.ErrExists) {
		return Condemned(ctx, store, backup, uid)
	}
	if err != nil {
		return Failure{}, fmt.Errorf("write failure: %w", err)
	}
	return f, nil
}

// Condemned returns the verdict that Condemn recorded; the error wraps objectstore.ErrNotFound
// while there is none, ErrDamaged if it is not understood.
func Condemned(ctx context.Context, store objectstore.Reader, backup, uid string) (Failure, error) {
	var r failureRecord
	data, err := objectstore.ReadAll(ctx, store, layout.Failure(backup, uid), maxFailureBytes)
	if err != nil {
		return r.Failure, fmt.Errorf("read failure: %w", err)
	}
	if err := jsonlimit.Unmarshal(data, &r, maxDecoded); err != nil {
		return r.Failure, fmt.Errorf("failure of backup %s: %w: %w", backup, ErrDamaged, err)
	}
	if r.FormatVersion != failureVersion {
		return r.Failure, fmt.Errorf("failure of backup %s: %w: formatVersion: %d is not supported", backup, ErrDamaged, r.FormatVersion)
	}
	if r.Backup != backup || r.UID != uid {
		return r.Failure, fmt.Errorf("failure of backup %s: %w: it belongs to backup %s (uid %s)", backup, ErrDamaged, r.Backup, r.UID)
	}
	return r.Failure, nil
}
