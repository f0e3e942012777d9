package pausing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

const (
	period = 15 * time.Second
	// firstPause and longPause bound the pauses between two attempts at a restore, which double.
	firstPause = 30 * time.Second
	longPause  = 10 * time.Minute
)

// Task resumes what restores left paused that no runner works on any more: those that ended while
// their records could not be read, or an object not be changed, or without a runner, and those that
// are deleted. It repeats that until it succeeds or the Restore is gone, and removes the mark then.
type Task struct {
	Resumer
	Reader    client.Reader // uncached
	Cached    client.Reader
	Client    client.Client
	Namespace string
	// Free reports that no process works on a restore that has not ended.
	Free func(*velerov1.Restore) bool
	Log  *slog.Logger
	// Events records what stays paused; nil records nothing.
	Events mark.Events

	tries map[types.UID]lastAttempt
}

// lastAttempt is the last attempt at a restore.
type lastAttempt struct {
	next  time.Time
	pause time.Duration
}

// Run makes a pass every 15 s until ctx ends.
func (t *Task) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, t.Clock, period, nil, t.Pass)
}

// Pass checks all restores once. Calls must not overlap.
func (t *Task) Pass(ctx context.Context) {
	var list velerov1.RestoreList
	if err := t.Cached.List(ctx, &list, client.InNamespace(t.Namespace)); err != nil {
		if ctx.Err() == nil {
			t.Log.WarnContext(ctx, "Failed to list restores that left objects paused; will retry", "error", err)
		}
		return
	}
	before := t.tries
	t.tries = map[types.UID]lastAttempt{}
	for i := range list.Items {
		o := &list.Items[i]
		if location := mark.PausedLocation(o); location != "" && ctx.Err() == nil {
			t.tries[o.UID] = t.resumePaused(ctx, o, location, before[o.UID])
		}
	}
}

// resumePaused resumes what a restore left paused if that is due, and returns when the next attempt is.
func (t *Task) resumePaused(ctx context.Context, o *velerov1.Restore, location string, last lastAttempt) lastAttempt {
	if !t.isResumeDue(o) || t.Clock.Now().Before(last.next) {
		return last
	}
	names, err := t.Resume(ctx, o, location, nil)
	switch {
	case ctx.Err() != nil:
		return last
	case errors.Is(err, ErrNoRecords):
		mark.RecordWarning(t.Events, o, "StillPaused", "Resume", "objects that the restore created may stay paused, because its records are gone from location "+location+"; resume them by hand")
		t.Log.ErrorContext(ctx, "Objects that a restore created may stay paused because its records are gone; resume them by hand", "restore", o.Name, "location", location)
		err = t.clearMark(ctx, o)
	case err == nil && len(names) == 0:
		if err = t.clearMark(ctx, o); err == nil {
			t.Log.InfoContext(ctx, "Resumed objects that a restore had left paused", "restore", o.Name)
		}
	}
	pause := min(max(2*last.pause, firstPause), longPause)
	if err != nil || len(names) > 0 {
		text := "objects are still paused; trying again: "
		if len(names) > 0 {
			text += joinWithin(names, namesInReason)
		} else {
			text += err.Error()
		}
		mark.RecordWarning(t.Events, o, "StillPaused", "Resume", text)
		t.Log.WarnContext(ctx, "Failed to resume the paused objects of a restore; will retry", "restore", o.Name, "objects", names, "after", pause, "error", err)
	}
	return lastAttempt{next: t.Clock.Now().Add(pause), pause: pause}
}

func (t *Task) isResumeDue(o *velerov1.Restore) bool {
	if o.DeletionTimestamp != nil {
		return o.Status.Phase.Terminal() || t.Free(o)
	}
	return o.Status.Settled(t.Clock.Now())
}

func (t *Task) clearMark(ctx context.Context, o *velerov1.Restore) error {
	err := kube.Update(ctx, t.Reader, t.Client, o.DeepCopy(), func(o *velerov1.Restore) error {
		if mark.PausedLocation(o) == "" {
			return kube.ErrSkip
		}
		mark.ClearPaused(o)
		return nil
	})
	if errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
