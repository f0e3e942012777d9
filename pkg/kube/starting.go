package kube

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// An API server that starts answers 403 until it has read the roles.
const (
	// startingTime is for how long after a failed connection a refusal may be due to that.
	startingTime = 30 * time.Second
	// startingPause lies between two requests.
	startingPause = 500 * time.Millisecond
	// maxRefusal is how much of a refusal is read to keep its connection, in bytes.
	maxRefusal = 64 << 10
)

// apiServerOutage is when the API server was last unreachable for the clients of one configuration.
type apiServerOutage struct {
	clock clock.WithTicker
	seen  atomic.Int64 // Unix nanoseconds; 0 is never
}

// mayBeStarting reports whether the API server was unreachable a moment ago.
func (o *apiServerOutage) mayBeStarting() bool {
	seen := o.seen.Load()
	return seen != 0 && o.clock.Since(time.Unix(0, seen)) < startingTime
}

// wrapTransport returns a transport that repeats forbidden requests while the API server may be starting.
func (o *apiServerOutage) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return &startingTransport{next: next, outage: o}
}

type startingTransport struct {
	next   http.RoundTripper
	outage *apiServerOutage
}

// WrappedRoundTripper returns the transport below, which client-go looks for.
func (t *startingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *startingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		answer, err := t.next.RoundTrip(r)
		if err != nil {
			if r.Context().Err() == nil {
				t.outage.seen.Store(t.outage.clock.Now().UnixNano())
			}
			return answer, err
		}
		if answer.StatusCode != http.StatusForbidden || !t.outage.mayBeStarting() {
			return answer, nil
		}
		again, err := copyRequest(r)
		if err != nil {
			return answer, nil //nolint:nilerr // the request cannot be repeated, and has an answer
		}
		timer := t.outage.clock.NewTimer(startingPause)
		select {
		case <-timer.C():
		case <-r.Context().Done():
			timer.Stop()
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, maxRefusal)
		_ = answer.Body.Close()
		r = again
	}
}

// copyRequest returns a request that was sent, to be sent once more.
func copyRequest(r *http.Request) (*http.Request, error) {
	again := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return again, nil
	}
	if r.GetBody == nil {
		return nil, http.ErrBodyNotAllowed
	}
	body, err := r.GetBody()
	again.Body = body
	return again, err
}
