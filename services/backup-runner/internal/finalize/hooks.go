package finalize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// postHooksAtOnce is for how many Pods of a failed backup post hooks run at once.
const postHooksAtOnce = 8

// countHooks adds the hooks of Pods whose hooks have ended.
func (s *State) countHooks(ended []checkpoint.HooksEnded) {
	for i := range ended {
		s.Contents.Hooks.HooksAttempted += ended[i].Attempted
		s.Contents.Hooks.HooksFailed += ended[i].Failed
	}
}

// runPostHooks runs the post hooks that a backup which fails owes: what pre hooks changed must not
// stay. That they run is durable before the first, in a record of this epoch; a later holder that
// does not find them all ended runs them again, in a record of its own. How they end is in the log of
// the process.
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
		return err
	}
	open := past.Open()
	if len(open) == 0 {
		return nil
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	_, err = s.Store.Stat(ctx, layout.PostHooksEnded(name, uid))
	if err == nil || !errors.Is(err, objectstore.ErrNotFound) {
		return err
	}
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	if err := s.recordHooks(ctx, layout.PostHooks(name, uid, s.Epoch), open); err != nil {
		return err
	}
	ended, err := s.runOwed(ctx, &past, open)
	if err != nil {
		return err
	}
	s.countHooks(ended)
	return s.recordHooks(ctx, layout.PostHooksEnded(name, uid), open)
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

// runOwed runs the post hooks of Pods.
func (s *State) runOwed(ctx context.Context, past *history.Hooks, open []checkpoint.HookedPod) ([]checkpoint.HooksEnded, error) {
	runner := podhook.New(podhook.Config{Exec: s.Exec, Intents: recorded{}, Past: past, Confirm: s.Holder.Confirm, Log: s.Log})
	ended := make([]checkpoint.HooksEnded, len(open))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(postHooksAtOnce)
	for i := range open {
		group.Go(func() error {
			pod := runner.Owed(&open[i])
			err := runner.Post(ctx, pod)
			for _, e := range pod.Entries() {
				level := s.Log.InfoContext
				if e.Level != joblog.Info {
					level = s.Log.WarnContext
				}
				level(ctx, "post hook of a failed backup", "namespace", e.Namespace, "pod", e.Name, "message", e.Message, "error", e.Err)
			}
			ended[i] = pod.Ended()
			return err
		})
	}
	return ended, group.Wait()
}

// recorded are intents that one record announced together.
type recorded struct{}

// Hook implements podhook.Intents.
func (recorded) Hook(context.Context, *checkpoint.HookedPod, *checkpoint.HookIntent) error {
	return nil
}

// Settle implements podhook.Intents.
func (recorded) Settle(context.Context) error { return nil }

// EndHook implements podhook.Intents.
func (recorded) EndHook(*checkpoint.HookOutcome) {}
