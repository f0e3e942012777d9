// Package servertime keeps a process whose clock is fast from writing times that have not come yet:
// it compares its clock with the Date of the API server's answers.
package servertime

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// dateStep is the precision of a Date header.
const dateStep = time.Second

// Clock is the process's own clock, bounded by the server's. Safe for concurrent
// use.
type Clock struct {
	own  clock.PassiveClock
	last atomic.Pointer[answer]
}

// answer is what one response shows of the server's clock.
type answer struct{ sent, received, date time.Time }

// New returns a Clock that has seen no answer yet: its time is that of own.
func New(own clock.PassiveClock) *Clock { return &Clock{own: own} }

// Now is the own time. Where that is provably ahead of the server's by the last answer, it is the
// server's time, at most the duration of that request and a second late.
func (c *Clock) Now() time.Time {
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
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return &observer{c, next} }

type observer struct {
	clock *Clock
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
