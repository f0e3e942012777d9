package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

const (
	owedHooksPeriod = 15 * time.Second
	// owedHooksSettled is the age of a terminal phase from which on a runner that had lost the claim runs no
	// more hooks: it has asked for its claim since.
	owedHooksSettled = 30 * time.Second
	// owedHooksLimit bounds one attempt, and owedHooksGiven the age of a terminal phase up to which they are
	// made.
	owedHooksLimit = 10 * time.Minute
	owedHooksGiven = 24 * time.Hour
)

// OwedHooksTask runs the post hooks of the Backups that are marked as owing some, as far as the records in
// their bucket have it, and removes the mark then. It repeats that for a day while the bucket
// cannot be read.
type OwedHooksTask struct {
	Locations Locations
	Exec      podhook.Executor
	Reader    client.Reader // uncached
	Cached    client.Reader
	Client    client.Client
	Namespace string
	Clock     clock.WithTicker
	Log       *slog.Logger
	// Events records which backups owe post hooks that do not run; nil records nothing.
	Events mark.Events
}

// Run makes a pass every 15 s until ctx ends.
func (t *OwedHooksTask) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, t.Clock, owedHooksPeriod, nil, t.Pass)
}

// Pass goes through all Backups once. Calls must not overlap.
func (t *OwedHooksTask) Pass(ctx context.Context) {
	var list velerov1.BackupList
	if err := t.Cached.List(ctx, &list, client.InNamespace(t.Namespace)); err != nil {
		if ctx.Err() == nil {
			t.Log.WarnContext(ctx, "Failed to list backups whose post hooks have not run; will retry", "error", err)
		}
		return
	}
	for i := range list.Items {
		b := &list.Items[i]
		if !mark.PostHooksOf(b).Owed || !b.Status.Phase.Terminal() || ctx.Err() != nil {
			continue
		}
		age := owedHooksGiven
		if at := b.Status.CompletionTimestamp; at != nil {
			age = t.Clock.Since(at.Time)
		}
		if age < owedHooksSettled {
			continue
		}
		if err := t.runOwedHooks(ctx, b); err != nil && ctx.Err() == nil {
			t.reportFailure(ctx, b, age, err)
		}
	}
}

// reportFailure logs that post hooks did not run, and gives them up after a day.
func (t *OwedHooksTask) reportFailure(ctx context.Context, b *velerov1.Backup, age time.Duration, err error) {
	if age < owedHooksGiven {
		mark.RecordWarning(t.Events, b, "PostHooksNotRun", "Hook", fmt.Sprintf("post hooks of the ended backup did not run; trying again: %v", err))
		t.Log.WarnContext(ctx, "Failed to run the post hooks of an ended backup; will retry", "backup", b.Name, "error", err)
		return
	}
	mark.RecordWarning(t.Events, b, "PostHooksNotRun", "Hook", fmt.Sprintf("post hooks of the ended backup never ran, and are not tried again; run them by hand: %v", err))
	t.Log.ErrorContext(ctx, "Failed to run the post hooks of an ended backup; run them by hand", "backup", b.Name, "error", err)
	if err := t.clearMark(ctx, b); err != nil {
		t.Log.WarnContext(ctx, "Failed to remove the mark of owed post hooks; will retry", "backup", b.Name, "error", err)
	}
}

// runOwedHooks runs the post hooks that a backup owes.
func (t *OwedHooksTask) runOwedHooks(ctx context.Context, b *velerov1.Backup) (err error) {
	ctx, stop := context.WithTimeout(ctx, owedHooksLimit)
	defer stop()
	loc, err := t.Locations.Get(ctx, b.Spec.StorageLocation)
	if err != nil {
		return fmt.Errorf("BackupStorageLocation %q: %w", b.Spec.StorageLocation, err)
	}
	store, err := t.Locations.Open(ctx, loc)
	if err != nil {
		return fmt.Errorf("BackupStorageLocation %q: %w", b.Spec.StorageLocation, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	held, _, err := claim.Parse(b)
	if err != nil {
		held.Epoch = 0 // no holder has an epoch any more
	}
	err = finalize.RunPostHooks(ctx, finalize.Job{
		Backup: b, Epoch: held.Epoch, Holder: endedOwner{}, Store: store, Clock: t.Clock, Log: t.Log.With("backup", b.Name), Exec: t.Exec})
	if errors.Is(err, finalize.ErrUnrecorded) {
		t.Log.WarnContext(ctx, "Failed to record the post hooks of an ended backup; they do not run again", "backup", b.Name, "error", err)
		err = nil // else they would run again with each pass
	}
	if err != nil {
		return err
	}
	if err := t.clearMark(ctx, b); err != nil {
		return err
	}
	t.Log.InfoContext(ctx, "Ran the post hooks of an ended backup", "backup", b.Name)
	return nil
}

// clearMark removes the mark.
func (t *OwedHooksTask) clearMark(ctx context.Context, b *velerov1.Backup) error {
	err := kube.Update(ctx, t.Reader, t.Client, b.DeepCopy(), func(b *velerov1.Backup) error {
		if !mark.PostHooksOf(b).Owed {
			return kube.ErrSkip
		}
		mark.ClearPostHooks(b)
		return nil
	})
	if errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// endedOwner replaces the claim of a backup that has ended: it changes no more.
type endedOwner struct{ finalize.Holder }

// Confirm implements finalize.Holder.
func (endedOwner) Confirm(ctx context.Context) error { return context.Cause(ctx) }
