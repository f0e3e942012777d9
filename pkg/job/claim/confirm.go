package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// confirmPause is the pause of Confirm after a failed read, unless the timeout requires less.
const confirmPause = time.Second

// Confirm returns nil when the claim that obj carries is this instance's at this moment. Call it
// before an effect that no epoch fences.
//
// While the Lease has been renewed without a gap since the claim was taken, and last less than five
// sixths of the timeout ago (from the begin of the renewal, on the monotonic clock), no process can
// have taken over, and no call is made: a claim taken from a live holder by hand is for Guard to
// see. Otherwise the object is read, repeatedly until the API server answers. An error wraps
// ErrLost, or is the cause of the end of ctx. Safe for concurrent use.
func (i *Instance) Confirm(ctx context.Context, obj client.Object) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g, err := i.guardOf(obj)
	if err != nil {
		return err
	}
	if g.mine.Owner == i.cfg.Name && i.isCertainOf(g) {
		return nil
	}
	for reported := false; ; reported = true {
		err := g.readClaim(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if !reported {
			i.reportError(ctx, "Failed to confirm claim; will retry", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-i.cfg.Clock.After(min(confirmPause, i.cfg.beatInterval())):
		}
	}
}

func (i *Instance) isCertainOf(g *claimGuard) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.certainty.isCertain(g.uid, g.mine.Epoch, i.cfg.Clock.Now())
}

// guardOf returns the guard of the claim that obj carries.
func (i *Instance) guardOf(obj client.Object) (*claimGuard, error) {
	mine, found, err := Parse(obj)
	if err == nil && !found {
		err = errors.New("the object carries none")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return newGuard(i, obj, mine), nil
}
