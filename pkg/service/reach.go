package service

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// OutageGrace is how long the API server or NATS may be away before the service is not ready: a
	// short outage delays work and leaves its answers right.
	OutageGrace = 30 * time.Second
	// probeAfter is how long after its last answer the API server is read only to find out whether it
	// answers, probeEvery the time between such reads, and probeLimit bounds one. Services that renew
	// a Lease are answered more often.
	probeAfter = 25 * time.Second
	probeEvery = 5 * time.Second
	probeLimit = 5 * time.Second
)

// serverReach keeps when something was last reached. It is safe for concurrent use.
type serverReach struct {
	clock clock.PassiveClock
	grace time.Duration // how old the last answer may be
	mu    sync.Mutex
	last  time.Time // zero before the first time
}

// noteReached notes that it was reached now.
func (r *serverReach) noteReached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.clock.Now()
}

// isRecent reports whether it was reached within the grace period.
func (r *serverReach) isRecent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.last.IsZero() && r.clock.Since(r.last) <= r.grace
}

// isSilent reports whether it was not reached for that long.
func (r *serverReach) isSilent(period time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.IsZero() || r.clock.Since(r.last) >= period
}

// Wrap notes the answers to the requests of next, except those of a server that fails by itself.
func (r *serverReach) Wrap(next http.RoundTripper) http.RoundTripper { return &observer{r, next} }

type observer struct {
	reach *serverReach
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusInternalServerError {
		o.reach.noteReached()
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// probeServer reads the version of the API server while nothing else is answered, until ctx ends. Wrap
// notes the answers.
func (r *serverReach) probeServer(ctx context.Context, config *rest.Config, ticks clock.WithTicker) error {
	config = rest.CopyConfig(config)
	config.Timeout = probeLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ticker := ticks.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		if r.isSilent(probeAfter) {
			_ = client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error() // Wrap notes what matters
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
