// Package retry repeats calls that fail for a while: there is one loop, and one list of what does
// not last.
package retry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Pauses between two calls, where a Loop does not say: they double.
const (
	firstPause = 200 * time.Millisecond
	longPause  = 10 * time.Second
	jitter     = 0.2
	factor     = 2
	steps      = 16 // after which the pause no longer grows
)

// BudgetError is the last error of a call whose budget is spent.
type BudgetError struct {
	Budget time.Duration
	Err    error
}

// Error implements error.
func (e *BudgetError) Error() string { return fmt.Sprintf("gave up after %s: %v", e.Budget, e.Err) }

// Unwrap returns the last error.
func (e *BudgetError) Unwrap() error { return e.Err }

// Loop repeats calls. The zero values of all fields but Clock and Log are usable. Safe for
// concurrent use.
type Loop struct {
	Clock clock.WithTicker
	Log   *slog.Logger
	// Transient reports an error that may go away by itself; nil means kube.IsTransient.
	Transient func(error) bool
	// Budget is for how long after the first failure of a call it is repeated; 0 means until its
	// context ends.
	Budget time.Duration
	// First and Longest are the pauses, which double from one to the other; 0 means 200 ms and 10
	// s.
	First, Longest time.Duration
	// Args are further attributes of what is logged.
	Args []any
	// Between is called after each pause, before the next call; its error ends the loop. Nil does
	// nothing.
	Between func(context.Context) error
}

// Do calls do until it succeeds, its error lasts, the budget is spent or ctx ends. It returns the
// last error of do, or that of Between. what names the call in the log.
func (l Loop) Do(ctx context.Context, what string, do func() error) error {
	backoff := wait.Backoff{Duration: pauseOrDefault(l.First, firstPause), Cap: pauseOrDefault(l.Longest, longPause), Factor: factor, Jitter: jitter, Steps: steps}
	var since time.Time // the first failure
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !l.isTransient(err) {
			return err
		}
		now := l.Clock.Now()
		if since.IsZero() {
			since = now
		}
		if l.Budget > 0 && now.Sub(since) > l.Budget {
			return &BudgetError{Budget: l.Budget, Err: err}
		}
		l.Log.WarnContext(ctx, "Call failed; will retry", append([]any{"call", what, "error", err}, l.Args...)...)
		if Pause(ctx, l.Clock, backoff.Step()) != nil {
			return err
		}
		if l.Between != nil {
			if err := l.Between(ctx); err != nil {
				return err
			}
		}
	}
}

func (l Loop) isTransient(err error) bool {
	if l.Transient != nil {
		return l.Transient(err)
	}
	return kube.IsTransient(err)
}

// Pause waits for that long. An error is the cause of the end of ctx.
func Pause(ctx context.Context, c clock.WithTicker, d time.Duration) error {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func pauseOrDefault(set, otherwise time.Duration) time.Duration {
	if set > 0 {
		return set
	}
	return otherwise
}
