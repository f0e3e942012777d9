package jobtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// ErrDown is the error of a bus that takes no hints.
var ErrDown = errors.New("no message queue")

// Bus carries hints in memory. It keeps one hint for each UID until its handler is done with it,
// and delivers each to one of the consumers. Safe for concurrent use.
type Bus struct {
	mu       sync.Mutex
	down     bool
	swallows bool
	sent     []*workv1.Hint
	kept     map[string]bool
	queue    chan *workv1.Hint
}

// NewBus returns a Bus.
func NewBus() *Bus { return &Bus{kept: map[string]bool{}, queue: make(chan *workv1.Hint, 1024)} }

// Down makes the bus refuse hints, or take them again.
func (b *Bus) Down(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// Swallow makes the bus take hints that it never delivers, or deliver them again.
func (b *Bus) Swallow(swallow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swallows = swallow
}

// Sent returns the hints that were published, refused ones too.
func (b *Bus) Sent() []*workv1.Hint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*workv1.Hint(nil), b.sent...)
}

// Publish implements engine.Bus.
func (b *Bus) Publish(_ context.Context, _ messaging.What, hint *workv1.Hint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, proto.CloneOf(hint))
	switch {
	case b.down:
		return ErrDown
	case b.swallows || b.kept[hint.GetUid()]:
		return nil
	}
	b.kept[hint.GetUid()] = true
	b.queue <- proto.CloneOf(hint)
	return nil
}

// Consume implements engine.Bus. A hint that is to be retried comes back after a second.
func (b *Bus) Consume(ctx context.Context, _ messaging.What, cfg messaging.ConsumerConfig, handle messaging.Handler) error {
	var group sync.WaitGroup
	defer group.Wait()
	for range max(cfg.Concurrency, 1) {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case hint := <-b.queue:
					b.applyOutcome(hint, handle(ctx, hint))
				}
			}
		})
	}
	return nil
}

func (b *Bus) applyOutcome(hint *workv1.Hint, o messaging.Outcome) {
	if o.Retries() {
		time.AfterFunc(time.Second, func() { b.queue <- hint }) //nolint:forbidigo // tests run it in a bubble
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.kept, hint.GetUid())
}
