package engine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// panicLimit is how many attempts at a job may panic one after another without progress.
const panicLimit = 3

// ErrInternal is why a job is given up whose attempts panicked.
var ErrInternal = errors.New("internal error")

// checkPanic reports whether an error is a panic, which is logged and becomes ErrInternal.
func (e *Engine[T]) checkPanic(ctx context.Context, job item, err error) (bool, error) {
	var carried *panics.Error
	if !errors.As(err, &carried) {
		return false, err
	}
	e.cfg.Log.ErrorContext(ctx, "Job panicked", "kind", e.cfg.ObjectKind, "name", job.name, "uid", job.uid,
		"panic", fmt.Sprint(carried.Value), "stack", string(carried.Stack))
	return true, ErrInternal
}

// decideAdmission decides about an object that no process holds.
func (e *Engine[T]) decideAdmission(ctx context.Context, obj T) (Decision[T], error) {
	c, _, damage := claim.Parse(obj)
	if c.Panics >= panicLimit {
		return e.cfg.Kind.GiveUp(obj, ErrInternal, c.Panics == panicLimit), nil
	}
	decision, err := e.cfg.Kind.Admit(ctx, obj)
	if damage != nil && decision.job != nil {
		return e.cfg.Kind.GiveUp(obj, damage, false), nil
	}
	return decision, err
}

// countPanic counts an attempt that panicked before it had a claim: it takes an epoch and releases
// it in the same write.
func (e *Engine[T]) countPanic(ctx context.Context, next item) {
	obj := e.newObject(next)
	err := kube.Update(ctx, e.cfg.Reader, e.cfg.Client, obj, func(o T) error {
		if e.cfg.Kind.Terminal(o) || o.GetDeletionTimestamp() != nil {
			return kube.ErrSkip
		}
		former, _, err := claim.Parse(o)
		if err != nil {
			return err
		}
		mine, err := e.cfg.Instance.Acquire(ctx, o)
		if err != nil {
			return err
		}
		return claim.Set(o, claim.Claim{Epoch: mine.Epoch, Panics: former.Panics + 1})
	})
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, kube.ErrReplaced) {
		e.cfg.Log.WarnContext(ctx, "Failed to count the panic of a job", "kind", e.cfg.ObjectKind, "name", next.name, "error", err)
	}
}
