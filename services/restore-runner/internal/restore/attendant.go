package restore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

const (
	// askEvery is the pause between two questions about the same items (Velero 1.18).
	askEvery = time.Second
	// askAtOnce is how many questions are put to one action at once.
	askAtOnce = 8
)

// question is to be put to an action until it says yes or fails, or the time is over.
type question struct {
	node      int32
	action    string
	readiness action.Readiness
	items     []action.Item
	timeout   time.Duration
	asked     bool  // it was given to the attendant
	deaths    int   // calls whose process died
	err       error // what came of it, once its node is woken

	until  time.Time
	due    bool
	cancel context.CancelFunc // of the call under way, nil for none
}

// attendant asks the actions of all objects that wait, and wakes them.
type attendant struct {
	clock   clock.WithTicker
	restore *action.Restore
	// collateral tells of an error that the call may not be to blame for; nil is always false.
	collateral func(error) bool
	woken      chan int32 // nodes that need not wait any longer
	news       chan *question
	answers    chan answer

	// Of the one goroutine.
	open  []*question // the one that was asked longest ago first
	calls map[string]int
	group sync.WaitGroup
}

type answer struct {
	question *question
	ready    bool
	err      error
}

func newAttendant(c clock.WithTicker, restore *action.Restore, collateral func(error) bool, woken chan int32) *attendant {
	return &attendant{
		clock: c, restore: restore, collateral: collateral, woken: woken, news: make(chan *question), answers: make(chan answer), calls: map[string]int{},
	}
}

// start begins to attend, until the returned function is called; that waits for the calls under
// way, which it interrupts.
func (a *attendant) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { a.attend(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

// put gives a question to the attendant.
func (a *attendant) put(ctx context.Context, q *question) {
	select {
	case a.news <- q:
	case <-ctx.Done():
	}
}

func (a *attendant) attend(ctx context.Context) {
	defer a.group.Wait()
	ticker := a.clock.NewTicker(askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case q := <-a.news:
			q.until, q.due = a.clock.Now().Add(q.timeout), true
			a.open = append(a.open, q)
		case r := <-a.answers:
			a.take(ctx, r)
		case <-ticker.C():
			a.tick(ctx)
		case <-ctx.Done():
			return
		}
		a.ask(ctx)
	}
}

// tick makes every question due again, or ends it.
func (a *attendant) tick(ctx context.Context) {
	now := a.clock.Now()
	for _, q := range slices.Clone(a.open) {
		if now.Before(q.until) {
			q.due = true
			continue
		}
		if q.cancel != nil {
			q.cancel()
		}
		a.settle(ctx, q, fmt.Errorf("action %s: additional items are not ready after %s: restored all the same", q.action, q.timeout))
	}
}

// take obeys an answer, unless it comes too late.
func (a *attendant) take(ctx context.Context, r answer) {
	q := r.question
	a.calls[q.action]--
	q.cancel()
	q.cancel = nil
	if !slices.Contains(a.open, q) {
		return
	}
	switch {
	case r.err != nil && q.deaths < repeats && a.collateral != nil && a.collateral(r.err):
		q.deaths++ // perhaps another object's doing: it is asked again when it is due
	case r.err != nil:
		a.settle(ctx, q, fmt.Errorf("whether additional items are ready is not known: %w", r.err))
	case r.ready:
		a.settle(ctx, q, nil)
	}
}

// settle ends a question.
func (a *attendant) settle(ctx context.Context, q *question, err error) {
	q.err = err
	a.open = slices.DeleteFunc(a.open, func(o *question) bool { return o == q })
	select {
	case a.woken <- q.node:
	case <-ctx.Done():
	}
}

// ask puts the questions that are due.
func (a *attendant) ask(ctx context.Context) {
	for _, q := range slices.Clone(a.open) {
		if !q.due || q.cancel != nil || a.calls[q.action] >= askAtOnce {
			continue
		}
		q.due = false
		a.calls[q.action]++
		i := slices.Index(a.open, q)
		a.open = append(slices.Delete(a.open, i, i+1), q)
		one, cancel := context.WithCancel(ctx)
		q.cancel = cancel
		a.group.Go(func() { a.call(one, ctx, q) })
	}
}

// call asks once. A panic is the action's defect and an error.
func (a *attendant) call(ctx, all context.Context, q *question) {
	r := answer{question: q}
	func() {
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("action %s: AreAdditionalItemsReady: panic: %v", q.action, p)
			}
		}()
		r.ready, r.err = q.readiness.Ready(ctx, q.items, a.restore)
	}()
	select {
	case a.answers <- r:
	case <-all.Done():
	}
}
