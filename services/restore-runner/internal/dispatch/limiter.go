package dispatch

import (
	"math"
	"sync"
	"time"
)

// Bounds of the adaptive limit.
const (
	initialLimit = 8
	minimumLimit = 2
	maximumLimit = 96
	// slowdown is how many times the best latency seen is still taken as the server's own speed.
	slowdown = 3
	// overload is how many times the best latency shows that requests only queue up.
	overload = 8
)

// Limiter decides how many objects are worked on at once from how the API server answers: one more
// for each round of answers in good time, fewer when latency grows to a multiple of the best seen,
// half when the server asks to slow down. The zero value is ready for use. Safe for concurrent use.
type Limiter struct {
	mu        sync.Mutex
	limit     float64
	best      time.Duration // best mean latency of a round
	sum       time.Duration
	answers   int
	throttled bool
}

// Limit is how many objects may be worked on now; at least 1.
func (l *Limiter) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.currentLimit())
}

func (l *Limiter) currentLimit() float64 {
	if l.limit == 0 {
		l.limit = initialLimit
	}
	return l.limit
}

// Observe reports one answer of the server: how long it took, and whether it was throttled (429 or
// overload).
func (l *Limiter) Observe(latency time.Duration, throttled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentLimit()
	if throttled && !l.throttled {
		// A new round begins, in which refusals of requests sent before this one do not count
		// again.
		l.throttled, l.sum, l.answers = true, 0, 0
		l.limit = math.Max(minimumLimit, l.limit/2)
	}
	l.sum += latency
	if l.answers++; float64(l.answers) >= l.limit {
		l.endRound(l.sum / time.Duration(l.answers))
	}
}

// endRound ends a round of about as many answers as the limit.
func (l *Limiter) endRound(mean time.Duration) {
	switch {
	case l.throttled:
	case l.best == 0 || mean <= slowdown*l.best:
		l.limit = math.Min(maximumLimit, l.limit+1)
	case mean > overload*l.best:
		l.limit = math.Max(minimumLimit, l.limit*0.8)
	}
	if !l.throttled && (l.best == 0 || mean < l.best) {
		l.best = mean
	} else {
		l.best += l.best / 50 // the server may have become slower for good
	}
	l.sum, l.answers, l.throttled = 0, 0, false
}
