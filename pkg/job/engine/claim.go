package engine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// errNotNow ends an attempt before its write.
var errNotNow = errors.New("nothing to do")

// claimJob makes this process the holder of a job, or ends it, as its kind decides. Without a job
// there is nothing to do here now.
func (e *Engine[T]) claimJob(ctx context.Context, next item) (*Held[T], Job[T], error) {
	var decision Decision[T]
	var mine, former claim.Claim
	var attempt attemptSpan
	var refused error // the kind's error, distinct from one of the API server about the object
	obj := e.newObject(next)
	take := func(o T) (err error) {
		if e.cfg.Kind.Terminal(o) || o.GetDeletionTimestamp() != nil {
			decision = NotNow[T]("it ended, or is being deleted")
			return errNotNow
		}
		acquired, acquireErr := e.cfg.Instance.Acquire(ctx, o)
		if acquireErr != nil && !hasUnreadableClaim(o) {
			return acquireErr // a live instance holds it, or may
		}
		if decision, err = e.decideAdmission(ctx, o); err != nil {
			refused = err
			return err
		}
		if decision.job != nil && acquireErr != nil {
			return acquireErr
		}
		mine = acquired
		former, _, _ = claim.Parse(o)
		mine.Panics = former.Panics
		return e.writeDecision(ctx, o, decision, mine, &attempt)
	}
	err := kube.Update(ctx, e.cfg.Reader, e.cfg.Client, obj, func(o T) error { return panics.Catch(func() error { return take(o) }) })
	panicked, err := e.checkPanic(ctx, next, err)
	switch {
	case panicked:
		e.countPanic(ctx, next)
		return nil, nil, err
	case refused != nil:
		return nil, nil, fmt.Errorf("admit %s %q: %w", e.cfg.ObjectKind, next.name, refused)
	case errors.Is(err, errNotNow):
		e.cfg.Log.DebugContext(ctx, "Did not claim job", "kind", e.cfg.ObjectKind, "name", next.name, "reason", decision.reason)
		return nil, nil, nil
	case errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case decision.job == nil:
		if decision.ended != nil {
			decision.ended(ctx, obj)
		}
		return nil, nil, nil
	}
	if former.Owner != "" && former.Owner != mine.Owner {
		e.metrics.takeovers.Inc()
	}
	attempt.noteClaimed(obj, mine)
	held := newHeld(e, obj, mine, attempt.span)
	held.Log.InfoContext(ctx, "Claimed job")
	failpoint.HitIn(e.cfg.Service, "claimed")
	return held, decision.job, nil
}

// newObject returns an object that names the job.
func (e *Engine[T]) newObject(job item) T {
	obj := e.cfg.New()
	obj.SetNamespace(e.cfg.Namespace)
	obj.SetName(job.name)
	obj.SetUID(job.uid)
	return obj
}

// hasUnreadableClaim reports that the claim of an object cannot be read: it has no holder, and can have none
// again.
func hasUnreadableClaim(o client.Object) bool {
	_, _, err := claim.Parse(o)
	return err != nil
}

// writeDecision carries a decision out on the object it was made about.
func (e *Engine[T]) writeDecision(ctx context.Context, o T, d Decision[T], mine claim.Claim, attempt *attemptSpan) error {
	switch {
	case d.end != nil:
		return d.end(o)
	case d.job == nil:
		return errNotNow
	}
	if err := d.job.Claimed(o, mine); err != nil {
		return err
	}
	e.beginSpan(ctx, attempt, o)
	attempt.noteTrace(ctx, o)
	failpoint.HitIn(e.cfg.Service, "before-claim")
	return claim.Set(o, mine)
}
