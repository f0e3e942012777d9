package messaging

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"buf.build/go/protovalidate"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const (
	defaultAckWait = 30 * time.Second
	// A pull waits for pullWait at the server. Two missed heartbeats end it, also if the server restarted and has
	// lost the pull. A hint that was sent to a pull that has ended is delivered again after AckWait, so heartbeats
	// are slow enough for a machine under load.
	pullWait      = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// A handler that panicked is tried again after panicRetry, and given up at the panicLimit-th
	// delivery.
	panicRetry = 10 * time.Second
	panicLimit = 5
)

// ConsumerConfig tunes Consume.
type ConsumerConfig struct {
	// Concurrency is the number of hints handled at once; 0 means 1.
	Concurrency int
	// AckWait is how long the server waits for a heartbeat before it delivers the hint again; 0
	// means 30 s. Heartbeats are sent three times as often.
	AckWait time.Duration
}

// Handler does the work behind a hint, or finds that there is none. It may run for hours:
// heartbeats keep the hint. ctx carries the publisher's trace and is cancelled only by shutdown; a
// lost heartbeat never stops it. The same hint may arrive twice, at two replicas at once: claims
// decide, not messages.
type Handler func(ctx context.Context, hint *workv1.Hint) Outcome

// Consume handles hints until ctx ends, then waits for running handlers and returns nil. Outages,
// deleted streams and consumers are repaired and logged. The only error is a kind of work that does
// not exist.
func (c *Client) Consume(ctx context.Context, what What, cfg ConsumerConfig, handle Handler) error {
	if err := what.checkFields(); err != nil {
		return err
	}
	if cfg.AckWait <= 0 {
		cfg.AckWait = defaultAckWait
	}
	c.dead.WithLabelValues(string(what)) // at zero: increase() does not see what a series begins with
	w := &hintWorker{Client: c, what: what, tune: cfg, handle: handle}
	var group sync.WaitGroup
	for range max(cfg.Concurrency, 1) {
		group.Go(func() { w.runWorker(ctx) })
	}
	group.Wait()
	return nil
}

// hintWorker pulls one hint at a time: a hint fetched ahead would age in the client.
type hintWorker struct {
	*Client
	what   What
	tune   ConsumerConfig
	handle Handler
}

func (w *hintWorker) runWorker(ctx context.Context) {
	for ctx.Err() == nil {
		consumer, err := w.openConsumer(ctx)
		for err == nil && ctx.Err() == nil {
			err = w.pullHint(ctx, consumer)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, jetstream.ErrNoHeartbeat) { // the next call reports whether more is wrong
			w.cfg.Log.Info("Pull ended without heartbeats; pulling again", "what", string(w.what))
			continue
		}
		if !errors.Is(err, nats.ErrReconnectBufExceeded) { // without a connection, which logConnection logs once
			w.cfg.Log.Warn("Work queue is unavailable; will retry", "what", string(w.what), "error", err)
		}
		w.pauseBeforeRetry(ctx)
	}
}

func (w *hintWorker) openConsumer(ctx context.Context) (jetstream.Consumer, error) {
	installation, err := w.installationToken(ctx)
	if err != nil {
		return nil, err
	}
	config := consumerConfig(w.what, installation, w.tune.AckWait)
	consumer, err := w.js.CreateOrUpdateConsumer(ctx, StreamWork, config)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return consumer, err
	}
	if err := w.EnsureStreams(ctx); err != nil {
		return nil, err
	}
	return w.js.CreateOrUpdateConsumer(ctx, StreamWork, config)
}

// pullHint waits for one hint and handles it; nil when none came.
func (w *hintWorker) pullHint(ctx context.Context, consumer jetstream.Consumer) error {
	waiting, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	batch, err := consumer.Fetch(1, jetstream.FetchContext(waiting), jetstream.FetchHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		w.processMessage(ctx, msg)
	}
	if err := batch.Error(); err != nil && waiting.Err() == nil {
		return err
	}
	return nil
}

// processMessage decides on one message: what cannot be read is given up, what came too late is dropped,
// the rest is handled.
func (w *hintWorker) processMessage(ctx context.Context, msg jetstream.Msg) {
	deliveries := uint64(1)
	if meta, err := msg.Metadata(); err == nil {
		deliveries = meta.NumDelivered
	}
	hint := &workv1.Hint{}
	err := proto.Unmarshal(msg.Data(), hint)
	if err == nil {
		err = protovalidate.Validate(hint)
	}
	if err != nil {
		w.acknowledgeHint(ctx, msg, hint, DeadLetter(fmt.Errorf("%w: %w", ErrInvalidHint, err)))
		return
	}
	if limit := hint.GetExpireTime(); limit != nil && limit.AsTime().Before(w.cfg.Clock.Now()) {
		w.acknowledgeHint(ctx, msg, hint, Done())
		return
	}
	ctx, end := w.startConsumer(ctx, string(w.what), hint.GetUid(), msg, deliveries)
	outcome := w.handleWithHeartbeat(ctx, msg, hint, deliveries)
	w.acknowledgeHint(ctx, msg, hint, outcome)
	end(outcome.err)
}

// handleWithHeartbeat runs the handler with heartbeats beside it.
func (w *hintWorker) handleWithHeartbeat(ctx context.Context, msg jetstream.Msg, hint *workv1.Hint, deliveries uint64) Outcome {
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { w.sendHeartbeats(beating, msg, hint) })
	defer group.Wait()
	defer stop()
	return w.handleGuarded(ctx, hint, deliveries)
}

// handleGuarded turns a panic of the handler into an outcome: one poisoned object must not take the
// process down.
func (w *hintWorker) handleGuarded(ctx context.Context, hint *workv1.Hint, deliveries uint64) (outcome Outcome) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("handler panicked: %v", p)
			w.cfg.Log.Error("Handler panicked", "what", string(w.what), "name", hint.GetName(), "panic", p, "stack", string(debug.Stack()))
			if outcome = Retry(panicRetry, err); deliveries >= panicLimit {
				outcome = DeadLetter(err)
			}
		}
	}()
	return w.handle(ctx, hint)
}

// sendHeartbeats reports to the server that the hint is being worked on, and waits for the confirmation.
// A heartbeat that is not confirmed is only logged: at worst the hint is delivered to another
// replica, which finds the claim taken.
func (w *hintWorker) sendHeartbeats(ctx context.Context, msg jetstream.Msg, hint *workv1.Hint) {
	period := w.tune.AckWait / 3
	ticker := w.cfg.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := w.confirmAck(ctx, msg, period, ackProgress); err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("Failed to confirm the heartbeat of a hint", "what", string(w.what), "name", hint.GetName(), "error", err)
		}
	}
}

// confirmAck sends an acknowledgement of a message and waits until the server has applied it.
func (c *Client) confirmAck(ctx context.Context, msg jetstream.Msg, limit time.Duration, body string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.conn.RequestWithContext(ctx, msg.Reply(), []byte(body))
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("the consumer is gone: %w", err)
	}
	return err
}
