package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// forwardedKey is the metadata key of a forwarded call, with the name of the instance that forwards it. Such a call is not
// forwarded again.
const forwardedKey = "holdfast-forwarded-by"

// forwardLogs sends what the holder of a restore answers to a call of StreamLogs. ctx is that of the call: its token is
// presented to the holder. Errors are those of the holder, the cause of the end of ctx, and wrap errgrpc.ErrUnavailable
// where the holder cannot be reached.
func (s *restoreServer) forwardLogs(ctx context.Context, holder string, req *restorev1.StreamLogsRequest, send func(*restorev1.StreamLogsResponse) error) error {
	conn, err := s.holders.ConnectInstance(ctx, holder)
	if errors.Is(err, operationhome.ErrGone) {
		return fmt.Errorf("instance %s, which has the log, has ended: %w", holder, errgrpc.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	stream, err := restorev1.NewRestoreServiceClient(conn).StreamLogs(metadata.AppendToOutgoingContext(ctx, forwardedKey, s.instance), req)
	for err == nil {
		var m *restorev1.StreamLogsResponse
		if m, err = stream.Recv(); err == nil {
			err = send(m)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("instance %s: %w", holder, errgrpc.FromStatus(err))
}
