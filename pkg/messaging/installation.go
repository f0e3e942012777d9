package messaging

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrInstallation reports that it is not known yet what a client works for.
var ErrInstallation = errors.New("the installation is not known")

var installationName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// installation is the name that was given once.
type installation struct {
	mu   sync.Mutex
	name string
}

// installation returns the token of subjects that keeps installations on one account apart: empty,
// or the name and a dot.
func (c *Client) installation(ctx context.Context) (string, error) {
	if c.cfg.Installation == nil {
		return "", nil
	}
	c.name.mu.Lock()
	defer c.name.mu.Unlock()
	if c.name.name == "" {
		name, err := c.cfg.Installation(ctx)
		if err == nil && !installationName.MatchString(name) {
			err = fmt.Errorf("%q is not a name", name)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrInstallation, err)
		}
		c.name.name = name
	}
	return c.name.name + ".", nil
}

// notUnique is JetStream's refusal of a consumer whose subjects another one has.
const notUnique = 10100

func overlaps(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == notUnique
}

// leaveUnnamed removes the consumer that receives the hints of every installation, and its hints:
// it is from before subjects named the installation. Hints that are still needed are published
// again.
func (w *worker) leaveUnnamed(ctx context.Context) error {
	stream, err := w.js.Stream(ctx, StreamWork)
	if err != nil {
		return err
	}
	if err := stream.DeleteConsumer(ctx, w.what.consumer("")); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("remove the consumer of all installations: %w", err)
	}
	w.cfg.Log.Info("consumer of all installations removed", "what", string(w.what))
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subjectWork+string(w.what)+".*"))
}
