package messaging

import (
	"context"
	"errors"
	"fmt"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
)

// ErrInvalidEvent reports an event that breaks the rules of its contract, naming the field.
var ErrInvalidEvent = errors.New("invalid event")

// PublishEvent records in the stream of events that an object changed, for what watches an
// installation from outside: no service reads events. An outage is an error; no correctness depends
// on the event.
func (c *Client) PublishEvent(ctx context.Context, event *eventv1.Event) (err error) {
	if err := protovalidate.Validate(event); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	data, err := proto.Marshal(event)
	if err != nil {
		return fmt.Errorf("publish event: %w", err)
	}
	ctx, end := c.startProducer(ctx, "event", event.GetUid(), len(data))
	defer func() { end(err) }()
	installation, err := c.installationToken(ctx)
	if err == nil {
		err = c.sendMessage(ctx, subjectEvents+installation+event.GetUid(), data, nil)
	}
	if err != nil {
		return fmt.Errorf("publish event for %s %s: %w", event.GetKind(), event.GetName(), err)
	}
	return nil
}
