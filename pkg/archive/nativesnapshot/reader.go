package nativesnapshot

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// readBudget is how long one read is retried while the API server does not answer.
const readBudget = 5 * time.Minute

// RetryingReader returns a reader whose Get is retried, with growing pauses and for up to five
// minutes, while the API server or the network is away: a moment's outage would otherwise cost the
// volumes of a location their snapshots. What the server has of the object, such as that it
// does not exist or may not be read, is returned at once, and so is any error once ctx ended. List
// is tried once. Safe for concurrent use.
func RetryingReader(reader client.Reader, clk clock.WithTicker, log *slog.Logger) client.Reader {
	return &retryingReader{Reader: reader, clock: clk, log: log}
}

type retryingReader struct {
	client.Reader
	clock clock.WithTicker
	log   *slog.Logger
}

// Get implements client.Reader.
func (r *retryingReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	loop := retry.Loop{Clock: r.clock, Log: r.log, Budget: readBudget, Args: []any{"object", key.String()}}
	return loop.Do(ctx, "read an object", func() error { return r.Reader.Get(ctx, key, into, opts...) })
}
