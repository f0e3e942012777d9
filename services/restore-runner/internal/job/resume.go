package job

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// markPaused writes on the Restore, before the first object is created paused, the location of the
// records that a resumption needs.
func (in *restoreInputs) markPaused(ctx context.Context) error {
	if in.paused.Location == in.recordsAt {
		return nil
	}
	err := in.writeMark(ctx, "mark that objects are paused", func(o *velerov1.Restore) error { return mark.SetPaused(o, in.recordsAt) })
	if err == nil {
		in.paused.Location = in.recordsAt
	}
	return err
}

// resumePaused ends the pauses of a restore that ends here, be it with a failure, cancelled or
// deleted. One that is released, or lost, leaves them to its next holder, who finds them in the
// records. The error is the cause of ctx's end.
func resumePaused(ctx context.Context, a *restoreAttempt) error {
	in := a.inputs
	if a.paused.Location == "" {
		return nil
	}
	if in.recorder == nil {
		return a.resumePausedObjects(ctx)
	}
	unread := a.readPaused(ctx)
	if in.records == nil || in.records.head.Finished == nil { // nothing may be recorded after that
		if unread != nil {
			in.recorder.Error(outcome.General, fmt.Sprintf("%s: %v", mark.PausedRemark, unread))
		}
		objects := pausing.Objects{UID: a.restore.UID, Recorder: in.recorder, REST: a.cfg.REST, Clock: a.cfg.Clock, Confirm: a.held.Confirm}
		if err := objects.Resume(ctx); err != nil {
			return err
		}
	}
	a.paused.Read, a.paused.Names = unread == nil, pausing.Names(in.recorder)
	a.paused.LogPaused(ctx, a.log, unread)
	if errors.Is(a.failure, errDeleted) && a.paused.IsEmpty() {
		a.removePausedMark(ctx)
	}
	return nil
}

// removePausedMark removes the mark from a restore that is deleted, which has no other end. Where that fails,
// what is resumed is resumed once more.
func (s *session) removePausedMark(ctx context.Context) {
	_, err := s.held.Update(ctx, func(o *velerov1.Restore) error {
		mark.ClearPaused(o)
		return nil
	})
	if err != nil {
		s.log.WarnContext(ctx, "Failed to remove the mark of paused objects; they will be resumed once more", "error", err)
	}
}

// readPaused reads what earlier holders left paused, where the records were not replayed: the
// backup cannot be read any more, or the location cannot be written.
func (a *restoreAttempt) readPaused(ctx context.Context) error {
	in := a.inputs
	if in.records != nil && in.records.replayed.Load() && !in.records.readOnly {
		return nil
	}
	limited, stop := context.WithTimeout(ctx, cancelledLimit)
	defer stop()
	return pausing.LoadUnfinished(limited, in.recordStore, a.restore, in.recorder)
}

// resumePausedObjects ends the pauses of a restore of which nothing is open. The error is the cause of ctx's
// end.
func (s *session) resumePausedObjects(ctx context.Context) error {
	r := pausing.Resumer{Locations: s.cfg.Locations, REST: s.cfg.REST, Clock: s.cfg.Clock}
	names, err := r.Resume(ctx, s.restore, s.paused.Location, s.held.Confirm)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.paused.Read, s.paused.Names = err == nil, names
	s.paused.LogPaused(ctx, s.log, err)
	return nil
}
