package job

import (
	"context"
	"errors"
	"runtime/debug"
)

// errInternal ends a backup whose run panicked: the next run would do the same.
var errInternal = errors.New("internal error")

// survive calls fn and turns a panic into errInternal.
func (j *execution) survive(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.log.ErrorContext(ctx, "job panicked", "panic", p, "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	return fn(ctx)
}

// conclude runs the job to its end. A job that panicked is not tried again: it
// ends as Failed, in the bucket where that decides. Should even this panic, the
// error leads to a hand-over, since nobody knows what the bucket says.
func (j *execution) conclude(ctx context.Context) error {
	err := j.survive(ctx, j.run)
	if !errors.Is(err, errInternal) {
		return err
	}
	if j.reserved {
		j.broken = true
		return j.survive(ctx, j.run)
	}
	return j.survive(ctx, func(ctx context.Context) error { return j.end(ctx, errInternal.Error()) })
}
