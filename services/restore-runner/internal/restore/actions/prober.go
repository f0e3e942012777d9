package actions

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
	// maxRetries is how often a question is repeated whose process died.
	maxRetries = 2
)

// Probe is a check that is repeated until the action reports readiness or fails, or the time is
// over. The exported fields are set before Add, and Err is read once the node is woken.
type Probe struct {
	Node      int32
	Action    string
	Readiness action.Readiness
	Items     []action.Item
	Timeout   time.Duration
	// Added reports that the prober has it.
	Added bool
	// Err is what came of it.
	Err error
	// hide ends that the wait is shown.
	hide func()

	crashes int // of calls
	until   time.Time
	due     bool
	cancel  context.CancelFunc // of the call under way, nil for none
}

// Prober calls the actions of all objects that wait, and wakes them.
type Prober struct {
	clock   clock.WithTicker
	restore *action.Restore
	// isCrash reports whether the plugin's process died, perhaps of another object; nil is always false.
	isCrash func(error) bool
	woken   chan int32 // nodes that need not wait any longer
	added   chan *Probe
	answers chan probeAnswer

	// Of the one goroutine.
	open  []*Probe // the one that was asked longest ago first
	calls map[string]int
	group sync.WaitGroup
}

type probeAnswer struct {
	probe *Probe
	ready bool
	err   error
}

// NewProber returns a prober that sends the nodes of probes that came to an end to woken. restore is the
// Restore as actions get it; isCrash reports whether the plugin's process died, nil is always false.
func NewProber(c clock.WithTicker, restore *action.Restore, isCrash func(error) bool, woken chan int32) *Prober {
	return &Prober{
		clock: c, restore: restore, isCrash: isCrash, woken: woken, added: make(chan *Probe), answers: make(chan probeAnswer), calls: map[string]int{},
	}
}

// Start begins to ask, until the returned function is called; that waits for the calls under way,
// which it interrupts.
func (p *Prober) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { p.runProbes(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

// Add gives a probe to the prober, which has to be started.
func (p *Prober) Add(ctx context.Context, q *Probe) {
	select {
	case p.added <- q:
	case <-ctx.Done():
	}
}

func (p *Prober) runProbes(ctx context.Context) {
	defer p.group.Wait()
	ticker := p.clock.NewTicker(probePeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case q := <-p.added:
			q.until, q.due = p.clock.Now().Add(q.Timeout), true
			p.open = append(p.open, q)
		case r := <-p.answers:
			p.takeAnswer(ctx, r)
		case <-ticker.C():
			p.tickProbes(ctx)
		case <-ctx.Done():
			return
		}
		p.askDueQuestions(ctx)
	}
}

// tickProbes makes every probe due again, or ends it.
func (p *Prober) tickProbes(ctx context.Context) {
	now := p.clock.Now()
	for _, q := range slices.Clone(p.open) {
		if now.Before(q.until) {
			q.due = true
			continue
		}
		if q.cancel != nil {
			q.cancel()
		}
		p.finishProbe(ctx, q, fmt.Errorf("action %s: additional items are not ready after %s: restored all the same", q.Action, q.Timeout))
	}
}

// takeAnswer obeys an answer, unless it comes too late.
func (p *Prober) takeAnswer(ctx context.Context, r probeAnswer) {
	q := r.probe
	p.calls[q.Action]--
	q.cancel()
	q.cancel = nil
	if !slices.Contains(p.open, q) {
		return
	}
	switch {
	case r.err != nil && q.crashes < maxRetries && p.isCrash != nil && p.isCrash(r.err):
		q.crashes++ // another object may have caused it: the question is repeated when it is due
	case r.err != nil:
		p.finishProbe(ctx, q, fmt.Errorf("whether additional items are ready is not known: %w", r.err))
	case r.ready:
		p.finishProbe(ctx, q, nil)
	}
}

// finishProbe ends a probe.
func (p *Prober) finishProbe(ctx context.Context, q *Probe, err error) {
	q.Err = err
	p.open = slices.DeleteFunc(p.open, func(o *Probe) bool { return o == q })
	select {
	case p.woken <- q.Node:
	case <-ctx.Done():
	}
}

// askDueQuestions puts the questions that are due.
func (p *Prober) askDueQuestions(ctx context.Context) {
	for _, q := range slices.Clone(p.open) {
		if !q.due || q.cancel != nil || p.calls[q.Action] >= maxProbes {
			continue
		}
		q.due = false
		p.calls[q.Action]++
		i := slices.Index(p.open, q)
		p.open = append(slices.Delete(p.open, i, i+1), q)
		one, cancel := context.WithCancel(ctx)
		q.cancel = cancel
		p.group.Go(func() { p.callProbe(one, ctx, q) })
	}
}

// callProbe makes one check. A panic of the action is returned as an error.
func (p *Prober) callProbe(ctx, all context.Context, q *Probe) {
	r := probeAnswer{probe: q}
	func() {
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("action %s: AreAdditionalItemsReady: panic: %v", q.Action, p)
			}
		}()
		r.ready, r.err = q.Readiness.Ready(ctx, q.Items, p.restore)
	}()
	select {
	case p.answers <- r:
	case <-all.Done():
	}
}
