package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// reconnectPause is the pause before a lost connection is made again.
const reconnectPause = time.Second

// KeepWatching calls watch until it returns nil or ctx ends. A service that cannot be reached after
// it has answered may be restarting, and watch is called again; any other error is returned.
func (o *RemoteOptions) KeepWatching(ctx context.Context, g *Global, answered *bool, watch func(context.Context) error) error {
	for {
		err := watch(ctx)
		switch {
		case err == nil, ctx.Err() != nil:
			return nil //nolint:nilerr // the user ended it
		case !*answered || !errors.Is(errgrpc.FromStatus(err), errgrpc.ErrUnavailable):
			return err
		}
		_, _ = fmt.Fprintf(g.ErrOut, "holdfast: %v; trying again\n", o.Explain(err))
		select {
		case <-ctx.Done():
			return nil
		case <-g.Clock.After(reconnectPause):
		}
	}
}

// TimeOf returns a time of a message, nil for none.
func TimeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}
