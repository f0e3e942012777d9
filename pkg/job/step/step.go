// Package step runs a job as lists of steps: each step takes values that earlier steps gave, gives others, and declares what a
// successor does with it and whether a request to cancel ends it.
//
// The process may die in any step. A list is therefore read as the life of a job: docs/adding-a-step.md shows one.
package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// Value names a part of the state that steps hand on.
type Value string

// Successor is what a holder that takes the job over does where an earlier one did the step.
type Successor string

// What successors do.
const (
	// Repeats: the step leaves nothing behind but work files, which died with their process.
	Repeats Successor = "repeats"
	// Adopts: what is in the bucket is compared with what would be written, and stays.
	Adopts Successor = "adopts"
	// Replaces: what is in the bucket is written again, from what was decided before.
	Replaces Successor = "replaces"
	// Follows: the first write decides for every holder; the successor continues from it.
	Follows Successor = "follows"
	// None: the phase is terminal, so the job is not taken over. What is left of the step is removed by the deletion service.
	None Successor = "none"
)

// Step is one step of a job whose steps share a state S.
type Step[S any] struct {
	// Name is what logs and spans call it.
	Name string
	// Needs are values that earlier steps gave, Gives those that are there afterwards.
	Needs, Gives []Value
	// Successor is what a holder that takes the job over does with the step.
	Successor Successor
	// Cancellable steps end once the job is asked to stop.
	Cancellable bool
	// Grace is how long a cancellable step may continue then; nil ends it at once.
	Grace func(state S) time.Duration
	// Failpoint is hit when the step is done. It is the last thing that happens in it.
	Failpoint string
	// Run does the step. It confirms the claim before anything that an epoch does not protect.
	Run func(ctx context.Context, state S) error
}

// ErrDecided ends a list of steps early and without an error: the end of the job was decided before.
var ErrDecided = errors.New("the end of the job is decided already")

// errOrder means that a step lacks what it needs: the list is wrong.
var errOrder = errors.New("a step is in the wrong place")

// Holder is the claim under which steps run.
type Holder interface {
	// Cancelling ends once the job is asked to stop, or with the claim.
	Cancelling() context.Context
	// Cancelled is the request to stop, nil while there is none.
	Cancelled() *mark.CancelError
}

// Runner takes the steps of one job. One goroutine uses it.
type Runner[S any] struct {
	State  S
	Holder Holder
	Clock  clock.WithTicker
	Log    *slog.Logger
	// Pauses reports an error that ends a list without being a failure of its step.
	Pauses func(error) bool
	// Outranks reports an error that counts although the job is asked to stop.
	Outranks func(ctx context.Context, err error) bool

	has map[Value]bool
}

// Give adds values that were decided without a step.
func (r *Runner[S]) Give(values ...Value) {
	if r.has == nil {
		r.has = map[Value]bool{}
	}
	for _, value := range values {
		r.has[value] = true
	}
}

// Run takes the steps in their order. The error of one ends the list; it is a *mark.CancelError where a request to cancel ended the
// step. ErrDecided of a step ends the list without an error.
func (r *Runner[S]) Run(ctx context.Context, steps []Step[S]) error {
	for i := range steps {
		err := r.takeStep(ctx, &steps[i])
		if errors.Is(err, ErrDecided) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner[S]) takeStep(ctx context.Context, step *Step[S]) error {
	for _, need := range step.Needs {
		if !r.has[need] {
			return fmt.Errorf("%w: %q needs %q", errOrder, step.Name, need)
		}
	}
	start := r.Clock.Now()
	var early error // an end that is no failure
	err := span.Do(ctx, step.Name, func(ctx context.Context) error {
		err := r.runUnlessCancelled(ctx, step)
		if errors.Is(err, ErrDecided) || err != nil && r.Pauses(err) {
			early = err
			return nil
		}
		return err
	})
	if err = cmp.Or(err, early); err != nil {
		return err
	}
	r.Give(step.Gives...)
	r.Log.DebugContext(ctx, "Step done", "step", step.Name, "seconds", r.Clock.Since(start).Seconds())
	return nil
}

// runUnlessCancelled runs a step, which a request to cancel ends where the step allows it.
func (r *Runner[S]) runUnlessCancelled(ctx context.Context, step *Step[S]) error {
	if !step.Cancellable {
		return step.runToEnd(ctx, r.State)
	}
	var grace time.Duration
	if step.Grace != nil {
		grace = step.Grace(r.State)
	}
	limit, end := engine.WithGrace(r.Holder.Cancelling(), r.Clock, grace, nil)
	defer end()
	working, release := engine.Join(ctx, limit)
	defer release()
	err := step.runToEnd(working, r.State)
	if err != nil && working.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", context.Cause(working), err)
	}
	if request := r.Holder.Cancelled(); request != nil && err != nil && !r.Outranks(ctx, err) {
		return request
	}
	return err
}

// runToEnd runs the step and hits its failpoint.
func (s *Step[S]) runToEnd(ctx context.Context, state S) error {
	if err := s.Run(ctx, state); err != nil {
		return err
	}
	if s.Failpoint != "" {
		failpoint.Hit(s.Failpoint)
	}
	return nil
}

// SideBySide makes one step of several that do not need one another. They run at once; the first error ends the others. All of
// them are what the first one is to successors and to requests to cancel.
func SideBySide[S any](steps ...Step[S]) Step[S] {
	both := Step[S]{Successor: steps[0].Successor, Cancellable: steps[0].Cancellable}
	names := make([]string, len(steps))
	for i := range steps {
		names[i] = steps[i].Name
		both.Needs, both.Gives = append(both.Needs, steps[i].Needs...), append(both.Gives, steps[i].Gives...)
	}
	both.Name = strings.Join(names, ", ")
	both.Run = func(ctx context.Context, state S) error {
		return panics.ForEach(ctx, len(steps), len(steps), func(ctx context.Context, i int) error { return steps[i].runToEnd(ctx, state) })
	}
	return both
}
