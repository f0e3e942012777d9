package backup

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// maxCalls is how often a call is made that the service has not answered within its deadline of a minute, where it
// says that its work goes on: for a backup without a manifest it has to read the whole tarball first.
const maxCalls = 60

// patientConn repeats unary calls whose work takes the service longer than its deadline, and tells that they do.
type patientConn struct {
	grpc.ClientConnInterface
	global *command.Global
}

// Invoke implements grpc.ClientConnInterface.
func (p patientConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) (err error) {
	notice := command.NewNotice(p.global)
	defer notice.End()
	for range maxCalls {
		err = awaitCall(p.global, notice, func() error { return p.ClientConnInterface.Invoke(ctx, method, args, reply, opts...) })
		if errgrpc.Reason(err) != errgrpc.ReasonStillWorking || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// awaitFirst returns the first message of a stream, and tells meanwhile that it waits for it.
func awaitFirst[M any](g *command.Global, receive func() (M, error)) (m M, err error) {
	notice := command.NewNotice(g)
	defer notice.End()
	err = awaitCall(g, notice, func() (err error) {
		m, err = receive()
		return err
	})
	return m, err
}

// awaitCall makes a call, and tells how long it takes.
func awaitCall(g *command.Global, notice *command.Notice, call func() error) error {
	began := g.Clock.Now()
	ticker := g.Clock.NewTicker(time.Second)
	defer ticker.Stop()
	done := make(chan error, 1)
	go func() { done <- call() }()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C():
			notice.Show(fmt.Sprintf("waiting for the service for %s", g.Clock.Since(began).Truncate(time.Second)))
		}
	}
}
