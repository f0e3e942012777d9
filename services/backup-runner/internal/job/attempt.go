package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// Held is a backup that this process holds.
type Held = engine.Held[*velerov1.Backup]

// attempt is one run of one backup by this process.
type attempt struct {
	*Kind
	admitted ledger.Entry
	first    bool // this is the backup's first holder
	foreign  bool // another server left the backup unfinished
	// collecting: this attempt has begun to collect.
	collecting bool
	held       *Held
	// owned ends with the claim, or when the grace period is over after the process was stopped.
	owned context.Context //nolint:containedctx // as long as the run
	// reserved: the bucket's directory is or may be this backup's, so that the metadata file
	// decides how it ends.
	reserved bool
	// opened are the Pods whose pre hooks ran and whose post hooks did not, as far as this process knows without
	// the bucket.
	opened podhook.Opened
	// owes: the backup ends, and an earlier holder may have left Pods without their post hooks, which only the bucket
	// names.
	owes bool
	// away has a value when the bucket has not answered for hookPatience.
	away chan struct{}
	// leaveBucket ends all work with the bucket.
	leaveBucket context.CancelCauseFunc
	// committing: this attempt began to commit the backup, so that the bucket may hold it as completed.
	committing bool
	// givenUp is why the backup ends without another try; nil for any other.
	givenUp error
}

var _ engine.Job[*velerov1.Backup] = (*attempt)(nil)

// Claimed implements engine.Job.
func (a *attempt) Claimed(b *velerov1.Backup, _ claim.Claim) error {
	a.first = b.Status.Phase == velerov1.BackupPhaseReadyToStart
	a.reserved = !a.first // an earlier holder may have come that far
	if a.foreign {
		b.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
	}
	if a.first {
		startBackup(b, a.currentTime())
	}
	return nil
}

// Run implements engine.Job.
func (a *attempt) Run(ctx context.Context, held *Held) error {
	a.held, a.owned, a.away = held, ctx, make(chan struct{}, 1)
	if a.first {
		a.announceBegun(ctx, held.Log, held.Object)
	}
	return a.concludeAttempt(a.runBackup(ctx))
}

// concludeAttempt returns the error of an attempt for the engine. A backup whose bucket is away ends as Failed on the object alone: without the mark of a
// commit the bucket holds no other end. One that may be committed, or that finalizes, is released and tried
// again, after the post hooks of its Pods.
func (a *attempt) concludeAttempt(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(a.owned), claim.ErrLost) || errors.Is(err, claim.ErrLost) || errors.Is(err, journal.ErrFenced) {
		a.handleLostClaim()
		return fmt.Errorf("%w: %w", claim.ErrLost, err)
	}
	var away *unreachableError
	if !errors.As(err, &away) {
		return err
	}
	ends := a.held.Cancelled() != nil || a.held.Object.Status.Phase == velerov1.BackupPhaseInProgress
	if ends && !a.committing && !mark.IsCommitting(a.held.Object) && a.held.Stopping().Err() == nil {
		return a.endAsFailed(a.owned, away.Error())
	}
	a.runHooksEarly(a.owned)
	return err
}

// runBackup carries the claimed backup to its end. An error means that the end was not reached: the claim
// was lost, the process stops, or the API is away. When the process stops, a backup that is
// collected comes to the end of its pages; everything else ends at once.
func (a *attempt) runBackup(ctx context.Context) error {
	ctx, release := engine.Join(ctx, a.held.Stopping())
	defer release()
	dir, err := makeWorkDir(a.WorkDir, a.held)
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			a.held.Log.WarnContext(ctx, "Failed to remove work files; they stay", "dir", dir, "error", err)
		}
	}()
	store, err := a.openStore(ctx)
	var bad *failedError
	if errors.As(err, &bad) {
		return a.endAsFailed(ctx, bad.reason)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			a.held.Log.WarnContext(ctx, "Failed to close bucket", "error", err)
		}
	}()
	ctx, a.leaveBucket = context.WithCancelCause(ctx)
	defer a.leaveBucket(nil)
	watched := a.watchBucket(ctx)
	defer watched()
	err = a.withStore(ctx, store, dir)
	if err != nil && errors.Is(context.Cause(ctx), errBucketAway) {
		return errBucketAway
	}
	return err
}

// makeWorkDir makes the job's directory, empty.
func makeWorkDir(root string, held *Held) (string, error) {
	dir := filepath.Join(root, fmt.Sprintf("backup-%s-%d", held.Object.UID, held.Claim.Epoch))
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("prepare the work dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("prepare the work dir: %w", err)
	}
	return dir, nil
}
