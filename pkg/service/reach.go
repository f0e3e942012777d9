package service

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	// OutageGrace is how long the API server or NATS may be away before the service is not ready: a
	// short outage delays work and leaves its answers right.
	OutageGrace = 30 * time.Second
	// probeEvery is how often the API server is asked for its version, and probeLimit how long it
	// may take to answer.
	probeEvery = 5 * time.Second
	probeLimit = 5 * time.Second
)

// reach keeps when something was last reached. It is safe for concurrent use.
type reach struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	last  time.Time // zero before the first time
}

// saw notes that it was reached now.
func (r *reach) saw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.clock.Now()
}

// recent reports whether it was reached within OutageGrace.
func (r *reach) recent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.last.IsZero() && r.clock.Since(r.last) <= OutageGrace
}

// probe reads the version of the API server now and then, until ctx ends. Any answer but one of a
// server that has no time counts.
func (r *reach) probe(ctx context.Context, config *rest.Config, ticks clock.WithTicker) error {
	config = rest.CopyConfig(config)
	config.Timeout = probeLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ticker := ticks.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if err == nil || !kube.IsTransient(err) || apierrors.IsTooManyRequests(err) {
			r.saw()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
