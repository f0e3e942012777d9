package pausing

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// resumeTries is how often a mark is written to an object that changes meanwhile.
const resumeTries = 4

// Objects are what a restore created paused, by this holder or an earlier one.
type Objects struct {
	UID      types.UID // the Restore's
	Recorder *outcome.Recorder
	// REST is the cluster restored to.
	REST  *rest.Config
	Clock clock.WithTicker
	// Confirm is called before each change of the cluster, which is not made after an error; nil
	// allows all.
	Confirm func(ctx context.Context) error
}

// Resume gives the marks of all objects their value in the backup. An object whose mark cannot be
// written is an error of the restore and stays among the recorder's paused ones; the error returned
// is the cause of ctx's end.
func (o *Objects) Resume(ctx context.Context) error {
	paused := o.Recorder.Paused()
	if len(paused) == 0 {
		return nil
	}
	limiter := &dispatch.Limiter{}
	client, err := apply.NewClient(o.REST, apply.ManagerOf(o.UID), limiter, o.Clock, o.Confirm)
	if err != nil {
		return err
	}
	r := &pauseResumer{recorder: o.Recorder, existing: &object.LiveReader{Client: client, Manager: apply.ManagerOf(o.UID)}}
	return dispatch.Run(ctx, dispatch.Independent(len(paused)), dispatch.Work{
		Do:      func(ctx context.Context, i int32) *dispatch.Wait { r.resumeOne(ctx, paused[i]); return nil },
		Weight:  func(int32) int64 { return 0 },
		Passive: func(int32) bool { return false },
		Limit:   limiter.Limit,
	})
}

// pauseResumer ends the pauses of a restore.
type pauseResumer struct {
	recorder *outcome.Recorder
	existing *object.LiveReader
}

// resumeOne ends the pause of one object.
func (r *pauseResumer) resumeOne(ctx context.Context, p *outcome.Paused) {
	e := r.recorder.Begin(outcome.General)
	failpoint.Hit("restore-runner/before-mark-back")
	err := r.bringBack(ctx, p)
	failpoint.Hit("restore-runner/mark-back")
	if ctx.Err() != nil {
		return // the next holder does it
	}
	if err == nil {
		e.Resumed(p.Target)
	} else {
		if !p.Failed {
			e.Error(fmt.Sprintf("%s is still paused: its mark could not be made what the backup says: %v", p.Name(), err))
		}
		e.NotResumed(p)
	}
	e.Commit()
}

// bringBack gives the mark of an object its value in the backup, if this restore made the object
// and it exists.
func (r *pauseResumer) bringBack(ctx context.Context, p *outcome.Paused) error {
	var last error
	for range resumeTries {
		live, err := r.existing.Get(ctx, p.Target)
		meta := object.MapAt(live, "metadata")
		if err != nil || live == nil || !r.existing.Manager.Changed(meta) {
			return err
		}
		patch, own := maps.Clone(p.Back), map[string]any{}
		maps.Copy(own, object.MapAt(patch, "metadata"))
		own["uid"] = object.TextAt(meta, "uid")
		patch["metadata"] = own
		_, err = r.existing.Client.Patch(ctx, p.Target, patch)
		// A patch for another object of the same name is invalid, since a UID cannot be changed:
		// the present object is read.
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return err
		}
		last = err
	}
	return last
}
