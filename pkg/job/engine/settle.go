package engine

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// ErrEnded means that a job had ended otherwise before its end was to be written.
var ErrEnded = errors.New("the job has ended already")

// Settlement is the end of a job that is claimed: the one write that makes its phase terminal.
// Whoever holds the claim may settle a job, be it the runner that worked on it, or queue-scheduler
// after it took the claim from one that did not stop.
type Settlement[T client.Object] struct {
	// Service begins the names of the failpoints.
	Service string
	Reader  client.Reader // uncached
	Client  client.Client
	// Object names the job by namespace, name and UID. It is not changed.
	Object T
	Claim  claim.Claim
	// Terminal reports that a job ended.
	Terminal func(T) bool
	// Retry repeats the write while the API server is away: giving up would only let another holder
	// come to the same end later.
	Retry retry.Loop
}

// Write ends the job by what end does to the object, as long as the claim holds and the object is
// not terminal, removes the mark of its commit, and returns the object as it was written. Its
// errors:
//   - claim.ErrLost: the claim, or the object, is another's. That is looked at first: whoever took over has announced the end.
//   - ErrEnded: the object is terminal, by another write than this one.
//   - the errors of end, unchanged.
func (s Settlement[T]) Write(ctx context.Context, end func(T) error) (final T, err error) {
	failpoint.HitIn(s.Service, "before-terminal")
	sent := false // by an attempt whose answer may have been lost
	err = s.Retry.Do(ctx, "write the end of the job", func() error {
		sending := false
		final, err = update(ctx, s.Reader, s.Client, s.Object, s.Claim, func(o T) error {
			if s.Terminal(o) {
				if sent {
					return kube.ErrSkip
				}
				return ErrEnded
			}
			if err := end(o); err != nil {
				return err
			}
			cancel.Unmark(o)
			sending = true
			return nil
		})
		sent = sent || sending
		return err
	})
	if err == nil {
		failpoint.HitIn(s.Service, "terminal-written")
	}
	return final, err
}
