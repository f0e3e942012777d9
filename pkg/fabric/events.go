package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"buf.build/go/protovalidate"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
)

const (
	eventBatch = 64
	// eventIdle is when the server forgets the position of a silent subscriber.
	eventIdle = 5 * time.Minute
)

// ErrInvalidEvent reports an event that breaks the rules of its contract, naming the field.
var ErrInvalidEvent = errors.New("invalid event")

// PublishEvent tells every replica that keeps a cache that an object changed.
// An outage is an error; nobody's correctness depends on the event.
func (c *Client) PublishEvent(ctx context.Context, event *eventv1.Event) (err error) {
	if err := protovalidate.Validate(event); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	data, err := proto.Marshal(event)
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	ctx, end := c.startProducer(ctx, "event", event.GetUid())
	defer func() { end(err) }()
	installation, err := c.installation(ctx)
	if err == nil {
		err = c.send(ctx, subjectEvents+installation+event.GetUid(), data, nil)
	}
	if err != nil {
		return fmt.Errorf("publish event for %s %s: %w", event.GetKind(), event.GetName(), err)
	}
	return nil
}

// Subscribe calls fn, one event at a time and in order, for events published
// from now on until ctx ends, then returns nil. Those of an outage follow after
// it; only events of a deleted stream are missed.
func (c *Client) Subscribe(ctx context.Context, fn func(*eventv1.Event)) error {
	s := &subscription{Client: c, fn: fn}
	for ctx.Err() == nil {
		consumer, err := s.consumer(ctx)
		for err == nil && ctx.Err() == nil {
			err = s.pull(ctx, consumer)
		}
		if ctx.Err() != nil {
			break
		}
		c.cfg.Log.Warn("event stream unavailable, retrying", "error", err)
		c.pause(ctx)
	}
	return nil
}

// subscription remembers how far it has read, by the server's own time: a
// sequence would mean something else in a stream that was created anew.
type subscription struct {
	*Client
	fn   func(*eventv1.Event)
	last time.Time
}

func (s *subscription) consumer(ctx context.Context) (jetstream.Consumer, error) {
	installation, err := s.installation(ctx)
	if err != nil {
		return nil, err
	}
	config := jetstream.ConsumerConfig{
		FilterSubject: subjectEvents + installation + ">",
		DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
		InactiveThreshold: eventIdle, MemoryStorage: true, Replicas: 1,
	}
	if !s.last.IsZero() {
		from := s.last.Add(time.Nanosecond)
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	consumer, err := s.js.CreateConsumer(ctx, StreamEvents, config)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return consumer, err
	}
	if err := s.EnsureStreams(ctx); err != nil {
		return nil, err
	}
	return s.js.CreateConsumer(ctx, StreamEvents, config)
}

// pull waits for one event and hands on what is there by then.
func (s *subscription) pull(ctx context.Context, consumer jetstream.Consumer) error {
	waiting, cancel := s.waiting(ctx)
	defer cancel()
	batch, err := consumer.Fetch(1, jetstream.FetchContext(waiting), jetstream.FetchHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	s.deliver(batch)
	if err := batch.Error(); err != nil && waiting.Err() == nil {
		return err
	}
	more, err := consumer.FetchNoWait(eventBatch)
	if err != nil {
		return err
	}
	s.deliver(more)
	return more.Error()
}

func (s *subscription) deliver(batch jetstream.MessageBatch) {
	for msg := range batch.Messages() {
		if meta, err := msg.Metadata(); err == nil {
			s.last = meta.Timestamp
		}
		event := &eventv1.Event{}
		err := proto.Unmarshal(msg.Data(), event)
		if err == nil {
			err = protovalidate.Validate(event)
		}
		if err != nil {
			s.cfg.Log.Warn("event dropped", "subject", msg.Subject(), "error", err)
			continue
		}
		s.fn(event)
	}
}
