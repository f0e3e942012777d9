package restore

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// readLiveLog reads what a restore that runs has logged.
func readLiveLog(ctx context.Context, conn grpc.ClientConnInterface, name string, follow bool, show func(string, int64) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := restorev1.NewRestoreServiceClient(conn).StreamLogs(ctx, &restorev1.StreamLogsRequest{Name: name, Follow: follow})
	for err == nil {
		var m *restorev1.StreamLogsResponse
		if m, err = stream.Recv(); err == nil {
			err = show(m.GetText(), m.GetLinesLeftOut())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
