package flight

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Finisher gives the objects of a restore their outcome. Safe for concurrent use.
type Finisher struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Owners   *Linker
	// DryRun has what an object would wait for count as come.
	DryRun bool
}

// Fail records the failure of an object with err. When this process stops it has no outcome: the
// next holder restores it.
func (s *Finisher) Fail(ctx context.Context, e *outcome.Entry, v int32, err error) {
	if object.IsEnding(ctx, err) {
		return
	}
	var delay *object.DelayError
	if s.DryRun && errors.As(err, &delay) && delay.Kind != object.Internal {
		e.Warn(delay.Waits)
		s.Done(ctx, e, v, apply.Result{Action: apply.Created, UID: "planned"}, nil, nil)
		return
	}
	e.Fail(err)
	e.Commit()
	s.Owners.Resolve(ctx, v, "")
}

// Done is the outcome of an object that is in the cluster now, with the owner references now, or was left as it is. The owner
// references of later, which it still needs, are recorded with it.
func (s *Finisher) Done(ctx context.Context, e *outcome.Entry, v int32, result apply.Result, now []any, later []Reference) {
	uid := result.UID
	if !s.Plan.Owns(v) {
		uid = ""
	}
	e.Done(result.Action, uid)
	owes := result.Fresh && len(later) > 0
	if owes {
		e.Owes(&outcome.Owes{UID: result.UID, Later: laterReferences(later)})
	}
	e.Commit()
	failpoint.Hit("restore-runner/after-outcome")
	if owes {
		s.Owners.CompleteLater(ctx, v, &result, now, later)
	}
	s.Owners.Resolve(ctx, v, result.UID)
}

// Skip is the outcome of an object that is left out.
func (s *Finisher) Skip(ctx context.Context, v int32, skip *apply.Skip) {
	e := s.Recorder.Begin(v)
	e.LeftOut()
	message := "not restored: " + skip.Reason
	if skip.Report {
		e.Warn(message)
	} else {
		e.Info(message)
	}
	s.Done(ctx, e, v, apply.Result{Action: apply.Skipped}, nil, nil)
}
