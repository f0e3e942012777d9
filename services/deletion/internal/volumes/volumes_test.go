package volumes_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/deletion/internal/volumes"
)

// mover is a volume-mover whose repository of namespace locked has another password.
type mover struct {
	volumev1.UnimplementedVolumeServiceServer
	asked chan *volumev1.ForgetSnapshotsRequest
}

func (m *mover) ForgetSnapshots(_ context.Context, req *volumev1.ForgetSnapshotsRequest) (*volumev1.ForgetSnapshotsResponse, error) {
	if req.GetNamespace() == "locked" {
		return nil, status.Error(codes.FailedPrecondition, "wrong repository password")
	}
	m.asked <- req
	return &volumev1.ForgetSnapshotsResponse{}, nil
}

// leadUntil holds the duty of volume-mover until the function that it returns is called.
func leadUntil(t *testing.T, c client.Client, address string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- leaderelection.Run(ctx, leaderelection.Config{
			Reader: c, Client: c, Namespace: "velero", Name: "volume-mover", Instance: "volume-mover-1", Address: address, Timeout: time.Second, Log: slog.New(slog.DiscardHandler),
		}, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return nil
		})
	}()
	<-begun
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestTheHolderOfTheDutyIsCalled(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, m := grpc.NewServer(), &mover{asked: make(chan *volumev1.ForgetSnapshotsRequest, 1)}
	volumev1.RegisterVolumeServiceServer(server, m)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	f := &volumes.Forgetter{Reader: api, Namespace: "velero", Dial: func(instance, address string) (*grpc.ClientConn, error) {
		require.Equal(t, "volume-mover-1", instance)
		return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}}
	none := f.ForgetSnapshots(t.Context(), "default", "n", []string{"a"})
	require.ErrorIs(t, none, errgrpc.ErrUnavailable)
	require.ErrorContains(t, none, "no volume-mover runs")

	stop := leadUntil(t, api, listener.Addr().String())
	require.NoError(t, f.ForgetSnapshots(t.Context(), "default", "n", []string{"a", "b"}))
	asked := <-m.asked
	require.Equal(t, "default", asked.GetLocation())
	require.Equal(t, "n", asked.GetNamespace())
	require.Equal(t, []string{"a", "b"}, asked.GetSnapshotIds())
	refused := f.ForgetSnapshots(t.Context(), "default", "locked", []string{"a"})
	require.ErrorIs(t, refused, errgrpc.ErrPrecondition)
	require.ErrorContains(t, refused, "wrong repository password")
	stop()
	require.ErrorIs(t, f.ForgetSnapshots(t.Context(), "default", "n", []string{"a"}), errgrpc.ErrUnavailable, "it has given the duty back")
}
