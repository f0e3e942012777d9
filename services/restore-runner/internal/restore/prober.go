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
	// probePeriod is the pause between two questions about the same items (Velero 1.18).
	probePeriod = time.Second
	// maxProbes is how many questions are put to one action at once.
	maxProbes = 8
)

// probe is to be put to an action until it says yes or fails, or the time is over.
type probe struct {
	node      int32
	action    string
	readiness action.Readiness
	items     []action.Item
	timeout   time.Duration
	asked     bool  // it was given to the prober
	deaths    int   // calls whose process died
	err       error // what came of it, once its node is woken

	until  time.Time
	due    bool
	cancel context.CancelFunc // of the call under way, nil for none
}

// prober asks the actions of all objects that wait, and wakes them.
type prober struct {
	clock   clock.WithTicker
	restore *action.Restore
	// collateral tells of an error that the call may not be to blame for; nil is always false.
	collateral func(error) bool
	woken      chan int32 // nodes that need not wait any longer
	news       chan *probe
	answers    chan answer

	// Of the one goroutine.
	open  []*probe // the one that was asked longest ago first
	calls map[string]int
	group sync.WaitGroup
}

type answer struct {
	probe *probe
	ready bool
	err   error
}

func newProber(c clock.WithTicker, restore *action.Restore, collateral func(error) bool, woken chan int32) *prober {
	return &prober{
		clock: c, restore: restore, collateral: collateral, woken: woken, news: make(chan *probe), answers: make(chan answer), calls: map[string]int{},
	}
}

// start begins to attend, until the returned function is called; that waits for the calls under
// way, which it interrupts.
func (a *prober) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { a.attend(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

// put gives a probe to the prober.
func (a *prober) put(ctx context.Context, q *probe) {
	select {
	case a.news <- q:
	case <-ctx.Done():
	}
}

func (a *prober) attend(ctx context.Context) {
	defer a.group.Wait()
	ticker := a.clock.NewTicker(probePeriod)
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

// tick makes every probe due again, or ends it.
func (a *prober) tick(ctx context.Context) {
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
func (a *prober) take(ctx context.Context, r answer) {
	q := r.probe
	a.calls[q.action]--
	q.cancel()
	q.cancel = nil
	if !slices.Contains(a.open, q) {
		return
	}
	switch {
	case r.err != nil && q.deaths < maxRetries && a.collateral != nil && a.collateral(r.err):
		q.deaths++ // perhaps another object's doing: it is asked again when it is due
	case r.err != nil:
		a.settle(ctx, q, fmt.Errorf("whether additional items are ready is not known: %w", r.err))
	case r.ready:
		a.settle(ctx, q, nil)
	}
}

// settle ends a probe.
func (a *prober) settle(ctx context.Context, q *probe, err error) {
	q.err = err
	a.open = slices.DeleteFunc(a.open, func(o *probe) bool { return o == q })
	select {
	case a.woken <- q.node:
	case <-ctx.Done():
	}
}

// ask puts the questions that are due.
func (a *prober) ask(ctx context.Context) {
	for _, q := range slices.Clone(a.open) {
		if !q.due || q.cancel != nil || a.calls[q.action] >= maxProbes {
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
func (a *prober) call(ctx, all context.Context, q *probe) {
	r := answer{probe: q}
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
