package dispatch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// tick is how often it is looked whose time has come.
	tick = 250 * time.Millisecond
	// firstPause and maxPause bound the time between two tries.
	firstPause = 250 * time.Millisecond
	maxPause   = 10 * time.Second
)

// Cause is what an object waits for.
type Cause struct {
	// Kind names what may be waited for as long as Timeout, counted from the first wait of the
	// object for the kind.
	Kind    string
	Timeout time.Duration
	// Key is shared by the objects that wait for the same; empty is the object's own.
	Key string
	// Err is the object's failure should nothing change in time. Of those with one Key the last one
	// is kept for all.
	Err error
}

// Retrier wakes the vertices of one Run that wait for something outside of the restore: an object of
// their name that is being deleted, a webhook that does not answer, an API that is not served yet.
// Safe for concurrent use.
//
// Nothing announces these changes, so that vertices are tried again, with growing pauses. Of those
// that wait for the same cause one is tried at a time, each in its turn, and the first that gets
// through wakes the others: a webhook that is away for minutes meets a few requests and not those
// of every object.
type Retrier struct {
	clock clock.WithTicker
	woken chan int32
	begin chan struct{} // closed by the first Wait

	mu      sync.Mutex
	queues  map[queueKey]*causeQueue
	waiters map[int32]*waitingVertex
	due     []int32 // to be woken
	news    chan struct{}
	once    sync.Once
}

type queueKey struct {
	shared string
	own    int32
}

// causeQueue are the vertices that wait for one cause, the one that is tried next first.
type causeQueue struct {
	waiting []int32
	pause   time.Duration
	next    time.Time
	err     error // the last failure, where the cause is shared
	trying  int32 // the one that was woken last and has not come back; noWaiter is none
}

const noWaiter int32 = -1

// waitingVertex is a vertex that waits, or has waited.
type waitingVertex struct {
	since   map[string]time.Time // by kind of cause
	cause   Cause
	until   time.Time
	queue   queueKey
	expired bool
}

// NewRetrier returns an empty retrier. Start has to be called for anything to be woken.
func NewRetrier(c clock.WithTicker) *Retrier {
	return &Retrier{
		clock: c, woken: make(chan int32), begin: make(chan struct{}), queues: map[queueKey]*causeQueue{}, waiters: map[int32]*waitingVertex{}, news: make(chan struct{}, 1),
	}
}

// Woken delivers the vertices that are to be tried again, for dispatch.Work.
func (l *Retrier) Woken() chan int32 { return l.woken }

// Start begins to wake, until the returned function is called or ctx ends.
func (l *Retrier) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { l.wakeDueVertices(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

// Wait lets a vertex wait, whose Do then returns a dispatch.Wait with Wake. False means that it has
// waited for causes of this kind for as long as it may.
func (l *Retrier) Wait(v int32, c Cause) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	w := l.waiters[v]
	if w == nil {
		w = &waitingVertex{since: map[string]time.Time{}, queue: queueKey{own: noWaiter}}
		l.waiters[v] = w
	}
	key := queueKey{shared: c.Key, own: noWaiter}
	if c.Key == "" {
		key.own = v
	}
	l.endTry(v, w, w.queue != key)
	since, known := w.since[c.Kind]
	if !known {
		since = now
		w.since[c.Kind] = now
	}
	w.cause, w.until, w.queue = c, since.Add(c.Timeout), key
	if !now.Before(w.until) {
		delete(l.waiters, v)
		return false
	}
	q := l.queues[key]
	if q == nil {
		q = &causeQueue{pause: firstPause, next: now.Add(firstPause), trying: noWaiter}
		l.queues[key] = q
	}
	if c.Key != "" {
		q.err, w.cause.Err = c.Err, nil
	}
	q.waiting = append(q.waiting, v)
	l.once.Do(func() { close(l.begin) })
	return true
}

// Expired returns the failure of a vertex that was woken because it has waited for as long as it
// may; nil for others.
func (l *Retrier) Expired(v int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiters[v]
	if w == nil || !w.expired {
		return nil
	}
	delete(l.waiters, v)
	return w.cause.Err
}

// Passed notes that a vertex waits no more, because what it waited for last has come. A vertex that
// never waited may pass.
func (l *Retrier) Passed(v int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiters[v]; w != nil {
		l.endTry(v, w, true)
		delete(l.waiters, v)
	}
}

// Waiting is what vertices wait for.
type Waiting struct {
	// Vertex is one that waits, Others counts those that wait for the same.
	Vertex int32
	Others int
	Since  time.Time
	// Err is the failure of the last try.
	Err error
}

// Waiting returns what is waited for now, in no order.
func (l *Retrier) Waiting() []Waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[queueKey]*Waiting{}
	for v, w := range l.waiters {
		since := w.since[w.cause.Kind]
		known := found[w.queue]
		if known == nil {
			known = &Waiting{Vertex: v, Others: -1, Since: since, Err: w.cause.Err}
			if q := l.queues[w.queue]; q != nil && known.Err == nil {
				known.Err = q.err
			}
			found[w.queue] = known
		}
		known.Others++
		if since.Before(known.Since) || since.Equal(known.Since) && v < known.Vertex {
			known.Vertex, known.Since = v, since
		}
	}
	out := make([]Waiting, 0, len(found))
	for _, w := range found {
		out = append(out, *w)
	}
	return out
}

// endTry notes how the try of a vertex ended. over: what it waited for has come, and all others that
// wait for the same are tried at once; else the pause before the next try doubles. The caller holds
// the lock.
func (l *Retrier) endTry(v int32, w *waitingVertex, over bool) {
	q := l.queues[w.queue]
	if q == nil {
		return
	}
	if !over {
		if q.trying == v {
			q.trying, q.pause = noWaiter, min(2*q.pause, maxPause)
			q.next = l.clock.Now().Add(q.pause)
		}
		return
	}
	delete(l.queues, w.queue)
	l.due = append(l.due, q.waiting...)
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *Retrier) wakeDueVertices(ctx context.Context) {
	select {
	case <-l.begin:
	case <-ctx.Done():
		return
	}
	ticker := l.clock.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			l.collectDue()
		case <-l.news:
		case <-ctx.Done():
			return
		}
		for _, v := range l.takeWoken() {
			select {
			case l.woken <- v:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *Retrier) takeWoken() []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.due
	l.due = nil
	return due
}

// collectDue wakes the objects that are due: the next retry of each cause, and those whose deadline has
// passed.
func (l *Retrier) collectDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	for key, q := range l.queues {
		q.waiting = slices.DeleteFunc(q.waiting, func(v int32) bool {
			w := l.waiters[v]
			if now.Before(w.until) {
				return false
			}
			w.expired, w.cause.Err = true, cmp.Or(w.cause.Err, q.err)
			l.due = append(l.due, v)
			return true
		})
		switch {
		case len(q.waiting) == 0 && q.trying == noWaiter:
			delete(l.queues, key)
		case len(q.waiting) > 0 && q.trying == noWaiter && !now.Before(q.next):
			q.trying = q.waiting[0]
			l.due = append(l.due, q.trying)
			q.waiting = q.waiting[1:]
		}
	}
}
