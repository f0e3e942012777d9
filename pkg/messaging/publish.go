package messaging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

var kinds = []What{WorkBackupRun, WorkRestoreRun, WorkDeletionRun, WorkOperationPoll}

// pendingDescription is how JetStream words its refusal of a second message on a subject that holds
// one (error code 10077 covers every failed store).
const pendingDescription = "maximum messages per subject exceeded"

func (w What) checkFields() error {
	if slices.Contains(kinds, w) {
		return nil
	}
	return fmt.Errorf("unknown kind of work %q", string(w))
}

// consumerName is the name of the durable consumer of an installation: names hold no dots.
func (w What) consumerName(installation string) string {
	name := strings.ReplaceAll(string(w), ".", "-")
	if installation != "" {
		name += "-" + strings.TrimSuffix(installation, ".")
	}
	return name
}

// hintSubject is where a hint of this kind is kept, one per object or unit of an installation.
func (w What) hintSubject(prefix, installation string, hint *workv1.Hint) string {
	subject := prefix + string(w) + "." + installation + hint.GetUid()
	if unit := hint.GetUnit(); unit != "" {
		subject += "." + unit
	}
	return subject
}

// Publish sends a hint with the trace context of ctx. An equal hint still pending is success.
// Missing streams are created. An outage is an error.
func (c *Client) Publish(ctx context.Context, what What, hint *workv1.Hint) (err error) {
	if err := what.checkFields(); err != nil {
		return err
	}
	if err := protovalidate.Validate(hint); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidHint, err)
	}
	data, err := proto.Marshal(hint)
	if err != nil {
		return fmt.Errorf("publish %s: %w", what, err)
	}
	ctx, end := c.startProducer(ctx, string(what), hint.GetUid(), len(data))
	defer func() { end(err) }()
	installation, err := c.installationToken(ctx)
	if err == nil {
		err = c.sendMessage(ctx, what.hintSubject(subjectWork, installation, hint), data, nil)
	}
	if isPending(err) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("publish %s for %s %s: %w", what, hint.GetKind(), hint.GetName(), err)
	}
	return nil
}

// sendMessage stores one message and waits for the server's acknowledgement; it creates the streams and tries once
// more when no stream listens on the subject.
func (c *Client) sendMessage(ctx context.Context, subject string, data []byte, header nats.Header) error {
	msg := &nats.Msg{Subject: subject, Data: data, Header: header}
	if msg.Header == nil {
		msg.Header = nats.Header{}
	}
	propagator.Inject(ctx, headerCarrier(msg.Header))
	_, err := c.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	if err := c.EnsureStreams(ctx); err != nil {
		return err
	}
	_, err = c.js.PublishMsg(ctx, msg)
	return err
}

func isPending(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Description == pendingDescription
}
