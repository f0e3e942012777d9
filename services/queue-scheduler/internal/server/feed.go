package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

const (
	// feedPace is the least time between two readings.
	feedPace = time.Second
	// feedPeriod is how often the queue is read although no object has changed: waiting raises
	// priorities.
	feedPeriod = time.Minute
)

// queueState is the queue at one moment, or why it could not be read. All watchers share it, so none
// changes it.
type queueState struct {
	entries []*queuev1.QueueEntry
	read    time.Time
	err     error
}

// Feed reads the queue for all watchers: after a change, at most once a second, and not at all
// while there is no watcher. Safe for concurrent use.
type Feed struct {
	queue   Queue
	clock   clock.WithTicker
	changed chan struct{}

	mu       sync.Mutex
	watchers map[chan queueState]bool
}

// NewFeed returns a Feed that serves once it runs.
func NewFeed(queue Queue, clk clock.WithTicker) *Feed {
	return &Feed{queue: queue, clock: clk, changed: make(chan struct{}, 1), watchers: map[chan queueState]bool{}}
}

// Changed reports that the queue may have changed.
func (f *Feed) Changed() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Run reads and delivers until ctx ends, and returns nil.
func (f *Feed) Run(ctx context.Context) error {
	ticker := f.clock.NewTicker(feedPeriod)
	defer ticker.Stop()
	known := map[string]*queuev1.QueueEntry{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		case <-ticker.C():
		}
		// Who joins from here on gets a state that is read afterwards.
		watchers := f.subscriberChannels()
		if len(watchers) == 0 {
			continue
		}
		now := f.loadState(ctx, known)
		for _, w := range watchers {
			select {
			case <-w: // a state that was not taken yet is out of date
			default:
			}
			w <- now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.clock.After(feedPace):
		}
	}
}

// loadState reads the queue. An entry that did not change since it was known stays the same pointer, so
// that comparing two states costs next to nothing.
func (f *Feed) loadState(ctx context.Context, known map[string]*queuev1.QueueEntry) queueState {
	read := f.clock.Now()
	entries, err := queueEntries(ctx, f.queue)
	if _, unknown := errgrpc.Status(err); unknown {
		err = fmt.Errorf("%w: %w", errgrpc.ErrUnavailable, err) // the next reading may succeed
	}
	if err != nil {
		return queueState{err: fmt.Errorf("read the queue: %w", err)}
	}
	before := maps.Clone(known)
	clear(known)
	for i, e := range entries {
		if old := before[e.GetUid()]; old != nil && proto.Equal(old, e) {
			entries[i] = old
		}
		known[e.GetUid()] = entries[i]
	}
	return queueState{entries: entries, read: read}
}

// joinFeed returns a channel with the latest state, which is read after the call, and what ends it.
func (f *Feed) joinFeed() (states <-chan queueState, leave func()) {
	w := make(chan queueState, 1)
	f.mu.Lock()
	f.watchers[w] = true
	f.mu.Unlock()
	f.Changed()
	return w, func() {
		f.mu.Lock()
		delete(f.watchers, w)
		f.mu.Unlock()
	}
}

func (f *Feed) subscriberChannels() []chan queueState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.watchers))
}
