package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the streams and the subjects they collect.
const (
	StreamWork   = "HOLDFAST_WORK"   // hints, at most one per subject
	StreamEvents = "HOLDFAST_EVENTS" // events, kept for a day
	StreamDead   = "HOLDFAST_DEAD"   // hints given up, kept for 30 days

	subjectWork   = "holdfast.work."
	subjectEvents = "holdfast.event."
	subjectDead   = "holdfast.dead."
)

const (
	streamBytes  = 64 << 20
	messageBytes = 64 << 10
)

func streamConfigs(replicas int) []jetstream.StreamConfig {
	common := jetstream.StreamConfig{
		Storage: jetstream.FileStorage, Replicas: replicas, MaxBytes: streamBytes, MaxMsgSize: messageBytes,
	}
	work, events, dead := common, common, common
	work.Name, work.Subjects, work.Description = StreamWork, []string{subjectWork + ">"}, "Hints: look at this object now"
	work.Retention = jetstream.WorkQueuePolicy
	work.Discard, work.DiscardNewPerSubject, work.MaxMsgsPerSubject = jetstream.DiscardNew, true, 1
	events.Name, events.Subjects, events.Description = StreamEvents, []string{subjectEvents + ">"}, "Events: this object changed"
	events.MaxAge = 24 * time.Hour
	dead.Name, dead.Subjects, dead.Description = StreamDead, []string{subjectDead + ">"}, "Hints that were given up, with the reason"
	dead.MaxAge = 30 * 24 * time.Hour
	return []jetstream.StreamConfig{work, events, dead}
}

// EnsureStreams creates the streams that are missing and brings those that differ to the wanted
// form, replicas excepted.
func (c *Client) EnsureStreams(ctx context.Context) error {
	for _, cfg := range streamConfigs(c.cfg.Replicas) {
		if err := c.ensureStream(ctx, cfg); err != nil {
			return fmt.Errorf("ensure stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

func (c *Client) ensureStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := c.js.CreateStream(ctx, cfg)
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return err
	}
	stream, err := c.js.Stream(ctx, cfg.Name)
	if err != nil {
		return err
	}
	cfg.Replicas = stream.CachedInfo().Config.Replicas
	_, err = c.js.UpdateStream(ctx, cfg)
	return err
}

// consumerConfig is the durable consumer of one kind of work. Limits that make the server give up
// or hold back a hint are off: giving up is decided here.
func consumerConfig(what What, installation string, ackWait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: what.consumerName(installation), FilterSubject: subjectWork + string(what) + "." + installation + ">",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: -1,
	}
}
