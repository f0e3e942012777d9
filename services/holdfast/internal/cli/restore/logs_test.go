package restore_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// runner is a restore-runner in which every restore has logged the same.
type runner struct {
	restorev1.UnimplementedRestoreServiceServer
	sent  []*restorev1.StreamLogsResponse
	asked []*restorev1.StreamLogsRequest
	ended func()
}

func (r *runner) StreamLogs(req *restorev1.StreamLogsRequest, stream grpc.ServerStreamingServer[restorev1.StreamLogsResponse]) error {
	r.asked = append(r.asked, req)
	for _, m := range r.sent {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if r.ended != nil {
		r.ended()
	}
	return nil
}

func TestTheLogOfARunningRestoreIsPrinted(t *testing.T) {
	c := clitest.New(t, newRestore("r", velerov1.RestorePhaseInProgress))
	service := &runner{sent: []*restorev1.StreamLogsResponse{{Text: "one\n", LinesLeftOut: 3}, {Text: "two\n"}}}
	c.ServeRestores(t, service)
	got := c.Run(t.Context(), "", "restore", "logs", "r")
	require.Zero(t, got.Code, got.Err)
	require.Equal(t, "one\ntwo\n", got.Out)
	require.Contains(t, got.Err, "3 earlier lines are left out")
	require.False(t, service.asked[0].GetFollow())
	require.Zero(t, c.Run(t.Context(), "", "restore", "logs", "-f", "r").Code)
	require.True(t, service.asked[1].GetFollow())
}

// The runner has no line of a restore that ended between two calls.
func TestTheLogOfARestoreThatHasJustEndedIsFetched(t *testing.T) {
	r := newRestore("r", velerov1.RestorePhaseInProgress)
	c := clitest.New(t, r)
	c.Files["RestoreLog/r"] = clitest.Zip(t, "stored\n")
	c.ServeRestores(t, &runner{ended: func() {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(r), r)
		r.Status.Phase = velerov1.RestorePhaseCompleted
		if err = errors.Join(err, c.Update(t.Context(), r)); err != nil {
			t.Error(err)
		}
	}})
	got := c.Run(t.Context(), "", "restore", "logs", "r")
	require.Zero(t, got.Code, got.Err)
	require.Equal(t, "stored\n", got.Out)
}
