// Package slots bounds how many deletions work at once without letting one that waits hold up the others: whoever does not report
// work for a while, because a plugin or a bucket does not answer, loses its slot and gets one again before its next step.
package slots

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// idle is how long a deletion may go without a step and keep its slot.
	idle = 10 * time.Second
	// perSlot is how many deletions may be under way for each slot, working or waiting: each may have processes of plugins.
	perSlot = 8
)

// Pool is a number of slots. It is safe for concurrent use.
type Pool struct {
	clock clock.WithTicker
	free  chan struct{} // has an element for each free slot

	mu  sync.Mutex
	all map[*Slot]struct{}
	max int
}

// New returns a pool of n slots. Its Run must be running, or nobody loses a slot.
func New(n int, c clock.WithTicker) *Pool {
	p := &Pool{clock: c, free: make(chan struct{}, n), all: map[*Slot]struct{}{}, max: n * perSlot}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// Slot is one deletion's leave to work. Step may be called by several goroutines at once, Leave after all of them. The methods of a nil
// Slot do nothing.
type Slot struct {
	pool *Pool
	turn chan struct{} // holds an element while a step waits for a slot

	mu   sync.Mutex
	held bool
	step time.Time // the latest
}

// Try returns a slot if one is free. A nil Pool has always one.
func (p *Pool) Try() (s *Slot, ok bool) {
	if p == nil {
		return nil, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= p.max {
		return nil, false
	}
	select {
	case <-p.free:
	default:
		return nil, false
	}
	s = &Slot{pool: p, turn: make(chan struct{}, 1), held: true, step: p.clock.Now()}
	p.all[s] = struct{}{}
	return s, true
}

// Full tells whether Try would fail now.
func (p *Pool) Full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) >= p.max || len(p.free) == 0
}

// Step is called before each step of the work. It waits for a slot if this one was lost meanwhile. Of steps at once one takes it for all.
func (s *Slot) Step(ctx context.Context) error {
	if s == nil || s.goOn() {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.goOn() {
		return nil
	}
	select {
	case <-s.pool.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.step = true, s.pool.clock.Now()
	return nil
}

// goOn notes a step, and tells whether the slot is held.
func (s *Slot) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = s.pool.clock.Now()
	return s.held
}

// Leave ends the work.
func (s *Slot) Leave() {
	if s == nil {
		return
	}
	s.pool.mu.Lock()
	delete(s.pool.all, s)
	s.pool.mu.Unlock()
	s.release(func() bool { return true })
}

// release frees the slot if it is held and may says so.
func (s *Slot) release(may func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held && may() {
		s.held = false
		s.pool.free <- struct{}{} // never waits: there is one element for each slot that is held
	}
}

// Run takes their slots from deletions that wait, until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	ticker := p.clock.NewTicker(idle / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		p.mu.Lock()
		all := make([]*Slot, 0, len(p.all))
		for s := range p.all {
			all = append(all, s)
		}
		p.mu.Unlock()
		for _, s := range all {
			s.release(func() bool { return p.clock.Since(s.step) >= idle })
		}
	}
}
