package nativesnapshot

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/kube"
)

// patience is how long one read is repeated while the API server does not answer.
const patience = 5 * time.Minute

// Patient returns a reader whose Get is repeated, with growing pauses and for up to five minutes, while the API server or the
// network is away: a moment's outage would otherwise cost the volumes of a location their snapshots. What the server says
// about the object, such as that it does not exist or may not be read, is returned at once, and so is any error once ctx ended.
// List is tried once. Safe for concurrent use.
func Patient(reader client.Reader, clk clock.WithTicker) client.Reader {
	return &patient{Reader: reader, clock: clk}
}

type patient struct {
	client.Reader
	clock clock.WithTicker
}

// Get implements client.Reader.
func (p *patient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 10 * time.Second}
	start := p.clock.Now()
	for {
		err := p.Reader.Get(ctx, key, into, opts...)
		if err == nil || !kube.IsTransient(err) || ctx.Err() != nil || p.clock.Since(start) > patience {
			return err
		}
		timer := p.clock.NewTimer(backoff.Step())
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
