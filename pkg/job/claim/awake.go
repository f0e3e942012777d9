package claim

import (
	"context"
	"fmt"
	"time"
)

const (
	// An instance that is idle declares this many timeouts, and reads the Leases of others this many
	// times within them.
	idleTimeouts = 10
	idleLooks    = 5
	// gracePeriod is for how long an instance stays awake after the last question about a claim and after
	// the last one of its own. The controllers of jobs ask every 15 s about one that another instance
	// holds.
	gracePeriod = time.Minute
)

// idleDuration is what an idle instance declares.
func (c *Config) idleDuration() time.Duration { return idleTimeouts * c.Timeout }

// isAwake reports that the Lease is to be renewed, and those of others to be read, at every beat: this
// instance holds a claim, asks about those of others, is about to take one, or its end matters
// otherwise.
// i.mu must be held.
func (i *Instance) isAwake(now time.Time) bool {
	return i.isEngaged(now) || i.cfg.Busy != nil && i.cfg.Busy()
}

// isEngaged is awake as far as claims decide. i.mu must be held.
func (i *Instance) isEngaged(now time.Time) bool {
	return i.holding > 0 || !i.asked.IsZero() && now.Sub(i.asked) < gracePeriod
}

// declaredDuration is the duration to declare now. i.mu must be held.
func (i *Instance) declaredDuration(now time.Time) time.Duration {
	if i.isAwake(now) {
		return i.cfg.Timeout
	}
	return i.cfg.idleDuration()
}

// isBeatDue reports that it is time for a beat: also as long as the Lease may declare less than an idle
// instance keeps.
func (i *Instance) isBeatDue() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.cfg.Clock.Now()
	return i.isLookDue(now) || !i.certainty.hasDeclared(i.cfg.idleDuration())
}

// isLookDue reports that the Leases of others are to be read in the next beat. i.mu must be held.
func (i *Instance) isLookDue(now time.Time) bool {
	return i.isAwake(now) || now.Sub(i.beaten) >= i.cfg.idleDuration()/idleLooks
}

// noteInterest notes a question about a claim, or that one is about to be taken. The first one begins a
// beat at once.
func (i *Instance) noteInterest() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.cfg.Clock.Now()
	if !i.isEngaged(now) {
		select {
		case i.woken <- struct{}{}:
		default:
		}
	}
	i.asked = now
}

// adjustGuards counts the guards that run.
func (i *Instance) adjustGuards(change int) {
	i.noteInterest()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holding += change
}

// wakeLease returns nil once the Lease declares the timeout and no more, which it does at once unless the
// instance was idle.
func (i *Instance) wakeLease(ctx context.Context) error {
	if !i.declaresMore() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, i.cfg.Timeout/gapsPerTimeout)
	defer cancel()
	if err := i.takeTurn(ctx); err != nil {
		return err
	}
	defer i.endTurn()
	if !i.declaresMore() {
		return nil
	}
	return i.renewLease(ctx, func(time.Time) time.Duration { return i.cfg.Timeout })
}

func (i *Instance) declaresMore() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.slow
}

// takeTurn waits until nothing else writes the Lease.
func (i *Instance) takeTurn(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to write lease %s: %w", i.cfg.Name, context.Cause(ctx))
	}
}

func (i *Instance) endTurn() { <-i.turn }
