package finalize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// ErrUnrecorded means that the post hooks which the records have as owed ran, and that the bucket did
// not take, or give, the record of that.
var ErrUnrecorded = errors.New("post hooks ran, which may not be recorded")

// RunPostHooks runs the post hooks that a backup owes which ended without a runner, as far as the
// records have it; of Holder only Confirm is called.
func RunPostHooks(ctx context.Context, job Job) error { return runPostHooks(ctx, New(job)) }

// countHooks adds the hooks of Pods whose hooks have ended.
func (s *State) countHooks(ended []checkpoint.HooksEnded) {
	for i := range ended {
		s.Contents.Hooks.HooksAttempted += ended[i].Attempted
		s.Contents.Hooks.HooksFailed += ended[i].Failed
	}
}

// runPostHooks runs the post hooks that a backup which fails owes: what pre hooks changed must not
// stay. That they run is durable before the first, in a record of this epoch; a later holder that
// does not find them all ended runs them again, in a record of its own. Where the bucket does not take
// the record they run all the same, as do those that this process began where it does not give the
// records; its error is returned after that. How they end is in the log of the process.
func runPostHooks(ctx context.Context, s *State) error {
	if s.Exec == nil {
		return nil
	}
	var past history.Hooks
	err := s.eachRecord(ctx, func(rec *checkpoint.Record) error {
		past.Add(rec)
		s.countHooks(rec.HooksEnded)
		return nil
	})
	if err != nil {
		_, failed := s.runOwedHooks(ctx, &past, s.Opened.Pods())
		return errors.Join(err, failed)
	}
	open := past.Open()
	if len(open) == 0 {
		return nil
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	ended, err := s.postHooksEnded(ctx)
	if err == nil {
		s.countHooks(ended)
		return nil
	}
	if errors.Is(err, objectstore.ErrNotFound) {
		if err := s.Holder.Confirm(ctx); err != nil {
			return err
		}
		err = recordHooks(ctx, s.Store, layout.PostHooks(name, uid, s.Epoch), open)
	}
	ended, failed := s.runOwedHooks(ctx, &past, open)
	if failed != nil {
		return errors.Join(err, failed)
	}
	if err == nil {
		err = recordHooks(ctx, s.Store, layout.PostHooksEnded(name, uid), ended)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// maxEnded bounds the record of post hooks that ended, in bytes.
const maxEnded = 64 << 20

// postHooksEnded reads how the hooks ended whose post hooks an earlier holder ran for the failure;
// objectstore.ErrNotFound where no holder recorded that all have run.
func (s *State) postHooksEnded(ctx context.Context) (ended []checkpoint.HooksEnded, err error) {
	data, err := objectstore.ReadAll(ctx, s.Store, layout.PostHooksEnded(s.Backup.Name, string(s.Backup.UID)), maxEnded)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &ended); err != nil {
		s.Log.WarnContext(ctx, "Failed to read the record of the hooks of a failed backup; they are not counted", "error", err)
	}
	return ended, nil
}

// runOwedHooks runs the post hooks of Pods, unless the run has ended, and counts them.
func (s *State) runOwedHooks(ctx context.Context, past *history.Hooks, pods []checkpoint.HookedPod) ([]checkpoint.HooksEnded, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cfg := podhook.Config{Exec: s.Exec, Past: past, Confirm: s.Holder.Confirm, Opened: s.Opened, Log: s.Log}
	ended, err := podhook.RunOwed(ctx, cfg, pods)
	if err != nil {
		return nil, err
	}
	s.countHooks(ended)
	return ended, nil
}

// recordHooks records what post hooks of a backup that fails are about to run, or have run.
func recordHooks[T any](ctx context.Context, store objectstore.Store, key string, pods []T) error {
	data, err := json.Marshal(pods)
	if err != nil {
		return fmt.Errorf("encode post hooks: %w", err)
	}
	if err := objectstore.CreateBytes(ctx, store, key, data); err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("record post hooks: %w", err)
	}
	return nil
}
