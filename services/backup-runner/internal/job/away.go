package job

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// lastWriteLimit bounds a write that ends the work of this process on a backup.
const lastWriteLimit = 5 * time.Second

// unreachableError is a bucket that did not answer for as long as it is waited for, and may hold
// what the backup stored or how it ended.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// cancelledPatience is how long a cancelled backup waits for a bucket that is away.
const cancelledPatience = 30 * time.Second

// errBucketAway ends the calls of a bucket that a cancelled backup does not wait for any longer.
var errBucketAway = &unreachableError{errors.New("it did not answer in time")}

// patience is how long a bucket is waited for that is away.
func (a *attempt) patience() time.Duration {
	if a.held.Cancelled() != nil {
		return min(cancelledPatience, a.StorePatience)
	}
	return a.StorePatience
}

// releaseEntry takes a deleted backup out of the ledger, now that no process works on it any more.
// If another instance may have taken it over before, its entry stays until queue-scheduler has
// detected the end of this one too.
func (a *attempt) releaseEntry(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWriteLimit)
	defer stop()
	if err := a.held.Confirm(ctx); err != nil {
		return
	}
	uid, b := a.held.Object.UID, &velerov1.Backup{}
	err := a.Reader.Get(ctx, client.ObjectKeyFromObject(a.held.Object), b)
	if err == nil && b.UID == uid || err != nil && !apierrors.IsNotFound(err) {
		return
	}
	if err := a.Ledger.Release(ctx, uid); err != nil && !errors.Is(err, context.Canceled) {
		a.held.Log.WarnContext(ctx, "ledger entry of a deleted backup not released, it will be", "error", err)
		return
	}
	a.held.Log.InfoContext(ctx, "ledger entry of a deleted backup released")
}
