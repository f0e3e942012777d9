package finalize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// Value names a part of the State that steps hand on.
type Value string

// Successor is what a holder that takes the backup over does where an earlier one did the step.
type Successor string

// What successors do.
const (
	// Repeats: the step leaves nothing behind but work files, which died with their process.
	Repeats Successor = "repeats"
	// Adopts: what is in the bucket is compared with what would be written, and stays.
	Adopts Successor = "adopts"
	// Follows: the first write decides for every holder; the successor continues from it.
	Follows Successor = "follows"
	// Overwrites: the successor comes to the same content and writes it again.
	Overwrites Successor = "overwrites"
	// None: the phase is terminal, so the backup is not taken over. What is left of the step is a
	// leftover, which the deletion service sweeps.
	None Successor = "none"
)

// Step is one step to the end of a backup.
type Step struct {
	// Name is what logs and spans call it.
	Name string
	// Needs are values that earlier steps gave, Gives those that are there afterwards.
	Needs, Gives []Value
	// Successor is what a holder that takes the backup over does with the step.
	Successor Successor
	// Cancellable steps end once the backup is asked to stop.
	Cancellable bool
	// Failpoint is hit when the step is done. It is the last thing that happens in it.
	Failpoint string
	// Run does the step. It confirms the claim before anything that an epoch does not protect.
	Run func(ctx context.Context, s *State) error
}

// errDecided ends a list of steps early: the backup was committed before.
var errDecided = errors.New("the backup is committed already")

// errOrder means that a step lacks what it needs: the list is wrong.
var errOrder = errors.New("a step is in the wrong place")

// Run takes the steps in their order. The error of one ends the list; it is a *cancel.Error where a
// request to cancel ended the step. A list that is ended since the backup is committed already is
// no error: State.Final is how.
func (s *State) Run(ctx context.Context, steps []Step) error {
	for i := range steps {
		err := s.step(ctx, &steps[i])
		if errors.Is(err, errDecided) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *State) step(ctx context.Context, step *Step) error {
	for _, need := range step.Needs {
		if !s.has[need] {
			return fmt.Errorf("%w: %q needs %q", errOrder, step.Name, need)
		}
	}
	began := s.Clock.Now()
	var early error // an end that is no failure
	err := span.Do(ctx, step.Name, func(ctx context.Context) error {
		err := s.unlessCancelled(ctx, step)
		if waits := (*WaitingError)(nil); errors.Is(err, errDecided) || errors.As(err, &waits) {
			early = err
			return nil
		}
		return err
	})
	if err = cmp.Or(err, early); err != nil {
		return err
	}
	for _, value := range step.Gives {
		s.has[value] = true
	}
	s.Log.DebugContext(ctx, "step done", "step", step.Name, "seconds", s.Clock.Since(began).Seconds())
	return nil
}

// run does the step and hits its failpoint.
func (step *Step) run(ctx context.Context, s *State) error {
	if err := step.Run(ctx, s); err != nil {
		return err
	}
	if step.Failpoint != "" {
		failpoint.Hit(step.Failpoint)
	}
	return nil
}

// sideBySide makes one step of several that do not need one another. They run at once; the first
// error ends the others. All of them are what the first one is to successors and to requests to
// cancel.
func sideBySide(steps ...Step) Step {
	both := Step{Successor: steps[0].Successor, Cancellable: steps[0].Cancellable}
	names := make([]string, len(steps))
	for i := range steps {
		names[i] = steps[i].Name
		both.Needs, both.Gives = append(both.Needs, steps[i].Needs...), append(both.Gives, steps[i].Gives...)
	}
	both.Name = strings.Join(names, ", ")
	both.Run = func(ctx context.Context, s *State) error {
		return each(ctx, len(steps), len(steps), func(ctx context.Context, i int) error { return steps[i].run(ctx, s) })
	}
	return both
}
