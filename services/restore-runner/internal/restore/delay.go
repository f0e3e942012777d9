package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/parking"
)

// The kinds of causes that an object waits for.
const (
	causeTerminating = "terminating"
	causeInternal    = "internal"
	causeUnserved    = "unserved"
)

// internalPatience is how long requests are repeated at which the server fails by itself, not
// because of a webhook.
const internalPatience = time.Minute

// delay is why an object has no outcome yet: something outside of the restore has to change first.
// Its text is the object's error should that not happen in time.
type delay struct {
	kind, key string
	timeout   time.Duration
	err       error
}

// Error implements error.
func (d *delay) Error() string { return d.err.Error() }

// Unwrap returns what keeps the object from the cluster.
func (d *delay) Unwrap() error { return d.err }

// terminating is the delay by an object of the same name that is being deleted.
func (r *run) terminating() *delay {
	return &delay{kind: causeTerminating, timeout: r.TerminatingTimeout,
		err: fmt.Errorf("one of that name is still being deleted after %s", r.TerminatingTimeout)}
}

// delayed makes a delay of the failures that may pass: an object that is being deleted is in the
// way, or the server could not ask a webhook. Others are returned as they are.
func (r *run) delayed(err error) error {
	if errors.Is(err, apply.ErrTerminating) {
		return r.terminating()
	}
	by, internal := apply.Internal(err)
	switch {
	case !internal:
		return err
	case by == "":
		return &delay{kind: causeInternal, timeout: min(internalPatience, r.ResourceTimeout), err: err}
	}
	return &delay{kind: causeInternal, key: by, timeout: r.ResourceTimeout, err: fmt.Errorf("%w (tried for %s)", err, r.ResourceTimeout)}
}

// waiter is where a vertex of a pass waits.
type waiter struct {
	lot *parking.Lot
	v   int32
}

// park lets the vertex wait if err is a delay, and there is time left for it.
func (w waiter) park(err error) *dispatch.Wait {
	var d *delay
	if !errors.As(err, &d) || !w.lot.Wait(w.v, parking.Cause{Kind: d.kind, Key: d.key, Timeout: d.timeout, Err: err}) {
		return nil
	}
	failpoint.Hit("restore-runner/parked")
	return &dispatch.Wait{Wake: true}
}

// retryInPlace does something at once that is part of another object's work, and repeats it while
// it would wait.
func (r *run) retryInPlace(ctx context.Context, do func(waiter) *dispatch.Wait) {
	w := waiter{lot: parking.New(r.Clock)}
	if do(w) == nil {
		return
	}
	dispatch.Aside(ctx, func() {
		for r.wait(ctx) == nil && do(w) != nil {
		}
	})
}
