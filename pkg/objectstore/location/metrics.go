package location

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// WithMetrics takes the time of the calls of all stores that the Opener opens, by call and result:
// done, failed, or cancelled by the caller. That an object is absent or exists is an answer. One
// Opener of a registry may have it; a second one is a panic.
func WithMetrics(r prometheus.Registerer, c clock.PassiveClock) Option {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_store_call_seconds", Help: "Time of calls to object stores until the answer, each attempt by itself, by call and result: done, failed, cancelled.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), //nolint:mnd // 1 ms to 65 s
	}, []string{"call", "result"})
	r.MustRegister(calls)
	return func(o *Opener) {
		o.clock = c
		o.see = func(call string, took time.Duration, err error) {
			calls.WithLabelValues(call, resultLabel(err)).Observe(took.Seconds())
		}
	}
}

func resultLabel(err error) string {
	switch {
	case err == nil, errors.Is(err, objectstore.ErrNotFound), errors.Is(err, objectstore.ErrExists):
		return "done"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "failed"
}
