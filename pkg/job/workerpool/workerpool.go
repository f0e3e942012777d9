// Package workerpool bounds how many jobs work at once, without letting one that waits hold up the
// others: in a pool with a limit on idleness, a job that reports no step for that long, because a
// plugin or a bucket does not answer, gives its place to another and gets one again before its next
// step.
package workerpool

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrLeft is the error of a step after the job left its place.
var ErrLeft = errors.New("the job has left its place")

// Config describes a pool.
type Config struct {
	// Size is how many jobs work at once, at least 1.
	Size int
	// Idle is how long a job may go without a step and keep its place; 0 means until it ends. The
	// pool's Run must be running for it.
	Idle time.Duration
	// Total is how many jobs may be under way, working or waiting; Size where it is less.
	Total int
	Clock clock.WithTicker
}

// Pool is a number of places. Safe for concurrent use.
type Pool struct {
	clock clock.WithTicker
	idle  time.Duration
	free  chan struct{} // has an element for each free place
	slots chan struct{} // has an element for each job that may still be accepted

	mu  sync.Mutex
	all map[*Place]struct{}
}

// New returns a pool whose places are free.
func New(c Config) *Pool {
	size := max(c.Size, 1)
	p := &Pool{clock: c.Clock, idle: c.Idle, free: make(chan struct{}, size), slots: make(chan struct{}, max(c.Total, size)), all: map[*Place]struct{}{}}
	for range cap(p.free) {
		p.free <- struct{}{}
	}
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	return p
}

// Place is one job's permission to work. Safe for concurrent use: a Step during or after Leave fails
// and takes nothing. The methods of a nil Place do nothing.
type Place struct {
	pool *Pool
	turn chan struct{} // holds an element while a step waits for a place
	lost chan struct{} // closed when the place is taken for the first time
	left chan struct{} // closed by Leave

	mu    sync.Mutex
	held  bool      // never again once left is closed
	taken bool      // lost is closed
	step  time.Time // the latest
}

// Try returns a place if one is free.
func (p *Pool) Try() (*Place, bool) {
	select {
	case <-p.slots:
	default:
		return nil, false
	}
	select {
	case <-p.free:
	default:
		p.slots <- struct{}{}
		return nil, false
	}
	return p.newPlace(), true
}

// Acquire waits for a place. The error is the cause of the end of ctx.
func (p *Pool) Acquire(ctx context.Context) (*Place, error) {
	select {
	case <-p.slots:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-p.free:
	case <-ctx.Done():
		p.slots <- struct{}{}
		return nil, context.Cause(ctx)
	}
	return p.newPlace(), nil
}

func (p *Pool) newPlace() *Place {
	s := &Place{pool: p, turn: make(chan struct{}, 1), lost: make(chan struct{}), left: make(chan struct{}), held: true, step: p.clock.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[s] = struct{}{}
	return s
}

// Lost is closed once the place was given to others, also if the job has one again since. A nil
// Place is never lost.
func (s *Place) Lost() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.lost
}

// Step is called before each step of the work. It waits for a place if this one was lost meanwhile.
// Of steps at once one takes it for all. The error is ErrLeft once the job left its place, or the
// cause of the end of ctx.
func (s *Place) Step(ctx context.Context) error {
	if s == nil {
		return nil
	}
	if held, err := s.noteProgress(); held || err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.left:
		return ErrLeft
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if held, err := s.noteProgress(); held || err != nil {
		return err
	}
	select {
	case <-s.pool.free:
		return s.regainPlace()
	case <-s.left:
		return ErrLeft
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noteProgress notes a step, and reports whether the place is held.
func (s *Place) noteProgress() (held bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone() {
		return false, ErrLeft
	}
	s.step = s.pool.clock.Now()
	return s.held, nil
}

// regainPlace makes a place that was taken from the pool the job's, unless the job left meanwhile.
func (s *Place) regainPlace() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone() {
		s.pool.free <- struct{}{} // never waits: its element was just taken
		return ErrLeft
	}
	s.held, s.step = true, s.pool.clock.Now()
	return nil
}

// isGone reports whether the job left its place. s.mu must be held.
func (s *Place) isGone() bool {
	select {
	case <-s.left:
		return true
	default:
		return false
	}
}

// Leave ends the work, and the steps that wait. Another call does nothing.
func (s *Place) Leave() {
	if s == nil {
		return
	}
	s.pool.mu.Lock()
	_, present := s.pool.all[s]
	delete(s.pool.all, s)
	s.pool.mu.Unlock()
	if !present {
		return
	}
	s.mu.Lock()
	close(s.left)
	s.mu.Unlock()
	s.releaseIf(func() bool { return true }, false)
	s.pool.slots <- struct{}{}
}

// releaseIf frees the place if it is held and may returns true. idle: for other jobs, while this one
// continues.
func (s *Place) releaseIf(may func() bool, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held || !may() {
		return
	}
	s.held = false
	s.pool.free <- struct{}{} // never waits: there is one element for each place that is held
	if idle && !s.taken {
		s.taken = true
		close(s.lost)
	}
}

// Run takes their places from jobs that are idle, until ctx ends. It returns nil.
func (p *Pool) Run(ctx context.Context) error {
	if p.idle <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := p.clock.NewTicker(p.idle / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			p.freeIdlePlaces()
		}
	}
}

func (p *Pool) freeIdlePlaces() {
	p.mu.Lock()
	all := make([]*Place, 0, len(p.all))
	for s := range p.all {
		all = append(all, s)
	}
	p.mu.Unlock()
	for _, s := range all {
		s.releaseIf(func() bool { return p.clock.Since(s.step) >= p.idle }, true)
	}
}
