// Package fabric moves work and events between services over NATS JetStream.
//
// A message is a hint: "look at this object now". The truth is in custom
// resources and the bucket, so every guarantee here is about promptness, never
// about correctness: deleting every stream loses nothing but time, because each
// service reconciles its own phases and publishes again.
package fabric

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"

	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// What names one kind of work; all replicas of its owner share one consumer.
type What string

// The kinds of work and what a consumer does on a hint.
const (
	WorkBackupRun       What = "backup.run"       // claim and run a Backup
	WorkBackupUnit      What = "backup.unit"      // collect one unit of a Backup
	WorkBackupFinalize  What = "backup.finalize"  // finalize a Backup
	WorkBackupPlan      What = "backup.plan"      // plan a Backup
	WorkRestoreRun      What = "restore.run"      // claim and run a Restore
	WorkRestoreFinalize What = "restore.finalize" // finalize a Restore
	WorkRestorePlan     What = "restore.plan"     // plan a Restore
	WorkOperationPoll   What = "operation.poll"   // poll the operations of a job
	WorkManifestIndex   What = "manifest.index"   // index a backup's manifest
	WorkDeletionRun     What = "deletion.run"     // run a DeleteBackupRequest
)

// ErrInvalidHint reports a hint without the fields its subject is made of.
var ErrInvalidHint = errors.New("invalid hint")

// Config describes a connection.
type Config struct {
	URL       string // one URL or a comma-separated list
	CredsFile string // NATS credentials file; empty means none
	Name      string // connection name shown by the server
	Log       *slog.Logger
	Clock     clock.WithTicker
	// Tracer makes the producer and consumer spans; nil makes none, trace
	// context is passed on all the same.
	Tracer trace.TracerProvider
	// Replicas of the streams when they are created; 0 means 1. Existing streams
	// keep theirs.
	Replicas int
}

// Client is a connection to NATS. It reconnects for ever; during an outage
// publishing returns errors and consuming waits. Safe for concurrent use.
type Client struct{ cfg Config }

// Connect starts a connection. An unreachable server is not an error: the
// client keeps trying in the background (Connected tells). A malformed URL or
// unreadable credentials file is.
func Connect(ctx context.Context, cfg Config) (*Client, error) { panic("skeleton") }

// Connected tells whether the connection is up now.
func (c *Client) Connected() bool { panic("skeleton") }

// Close ends the connection. Consume and Subscribe must have returned.
func (c *Client) Close() { panic("skeleton") }

// EnsureStreams creates the streams that are missing.
func (c *Client) EnsureStreams(ctx context.Context) error { panic("skeleton") }

// Publish sends a hint with the trace context of ctx. An equal hint still
// pending is success. Missing streams are created. An outage is an error.
func (c *Client) Publish(ctx context.Context, what What, hint *workv1.Hint) error {
	panic("skeleton")
}

// ConsumerConfig tunes Consume.
type ConsumerConfig struct {
	// Concurrency is the number of hints handled at once; 0 means 1.
	Concurrency int
	// AckWait is how long the server waits for a heartbeat before it delivers
	// the hint again; 0 means 30 s. Heartbeats are sent three times as often.
	AckWait time.Duration
	// Left is asked after the confirmed ack of a finished hint whether work
	// appeared meanwhile (the subject refused hints until then); true publishes
	// the hint again. Nil means no.
	Left func(ctx context.Context, hint *workv1.Hint) bool
}

// Handler does the work behind a hint, or finds that there is none. It may run
// for hours: heartbeats keep the hint. ctx carries the publisher's trace and is
// cancelled only by shutdown; a lost heartbeat never stops it. The same hint may
// arrive twice, at two replicas at once: claims decide, not messages.
type Handler func(ctx context.Context, hint *workv1.Hint) Outcome

// Outcome says what becomes of a hint.
type Outcome struct{ settle func() }

// Done: the effect is durable, or there was nothing to do.
func Done() Outcome { panic("skeleton") }

// Retry delivers the hint again after a delay; err, if any, is logged.
func Retry(after time.Duration, err error) Outcome { panic("skeleton") }

// DeadLetter gives up: the hint and err are stored in the dead letter stream,
// then the hint is terminated.
func DeadLetter(err error) Outcome { panic("skeleton") }

// Again acknowledges the hint and publishes it anew, because work is left.
func Again() Outcome { panic("skeleton") }

// Consume handles hints until ctx ends, then waits for running handlers and
// returns nil. Outages, deleted streams and consumers are repaired and logged.
func (c *Client) Consume(ctx context.Context, what What, cfg ConsumerConfig, handle Handler) error {
	panic("skeleton")
}

// PublishEvent tells every replica that keeps a cache that an object changed.
func (c *Client) PublishEvent(ctx context.Context, event *eventv1.Event) error { panic("skeleton") }

// Subscribe calls fn, one event at a time, for events published from now on
// until ctx ends. Events during an outage may be missed.
func (c *Client) Subscribe(ctx context.Context, fn func(*eventv1.Event)) error { panic("skeleton") }
