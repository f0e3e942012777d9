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
		return errors.Join(err, s.runOwed(ctx, &past, s.Opened.Pods()))
	}
	open := past.Open()
	if len(open) == 0 {
		return nil
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	_, err = s.Store.Stat(ctx, layout.PostHooksEnded(name, uid))
	if err == nil {
		return nil
	}
	if errors.Is(err, objectstore.ErrNotFound) {
		if err := s.Holder.Confirm(ctx); err != nil {
			return err
		}
		err = s.recordHooks(ctx, layout.PostHooks(name, uid, s.Epoch), open)
	}
	if err != nil {
		return errors.Join(err, s.runOwed(ctx, &past, open))
	}
	if err := s.runOwed(ctx, &past, open); err != nil {
		return err
	}
	return s.recordHooks(ctx, layout.PostHooksEnded(name, uid), open)
}

// runOwed runs the post hooks of Pods, unless the run has ended.
func (s *State) runOwed(ctx context.Context, past *history.Hooks, pods []checkpoint.HookedPod) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cfg := podhook.Config{Exec: s.Exec, Past: past, Confirm: s.Holder.Confirm, Opened: s.Opened, Log: s.Log}
	ended, err := podhook.RunOwed(ctx, cfg, pods)
	if err == nil {
		s.countHooks(ended)
	}
	return err
}

func (s *State) recordHooks(ctx context.Context, key string, pods []checkpoint.HookedPod) error {
	data, err := json.Marshal(pods)
	if err != nil {
		return fmt.Errorf("encode post hooks: %w", err)
	}
	if err := objectstore.CreateBytes(ctx, s.Store, key, data); err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("record post hooks: %w", err)
	}
	return nil
}
