package kube

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// dateStep is the precision of a Date header.
const dateStep = time.Second

// ServerClock is the process's own clock, bounded by the API server's, which the Date of its answers
// shows: a process whose clock is fast does not write times that have not come yet. Safe for concurrent
// use.
type ServerClock struct {
	own  clock.PassiveClock
	last atomic.Pointer[answer]
}

// answer is what one response shows of the server's clock.
type answer struct{ sent, received, date time.Time }

// NewServerClock returns a clock that has seen no answer yet: its time is that of own.
func NewServerClock(own clock.PassiveClock) *ServerClock { return &ServerClock{own: own} }

// Now is the own time. Where that is provably ahead of the server's by the last answer, it is the
// server's time, at most the duration of that request and a second late.
func (c *ServerClock) Now() time.Time {
	now := c.own.Now()
	a := c.last.Load()
	if a == nil {
		return now
	}
	// The server read its clock after sent and before received, and cut it to a second.
	if latest := a.date.Add(dateStep + c.own.Since(a.sent)); !now.After(latest) {
		return now
	}
	return a.date.Add(c.own.Since(a.received))
}

// Wrap notes the Date of every response of next.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper { return &observer{c, next} }

type observer struct {
	clock *ServerClock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := o.clock.own.Now()
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if date, parseErr := http.ParseTime(resp.Header.Get("Date")); parseErr == nil {
		o.clock.last.Store(&answer{sent: sent, received: o.clock.own.Now(), date: date})
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }
