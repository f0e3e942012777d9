package job

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// dialServer serves the API in-process and returns a client of it.
func dialServer(t *testing.T, c client.Client) backupv1.BackupServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			resp, err := h(ctx, req)
			return resp, toStatus(err)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return toStatus(h(srv, ss))
		}))
	backupv1.RegisterBackupServiceServer(srv, NewServer(c, "velero", clock.RealClock{}, nil))
	go func() { _ = srv.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
	})
	return backupv1.NewBackupServiceClient(conn)
}

func toStatus(err error) error {
	st, _ := errgrpc.Status(err)
	return st.Err()
}

func newBackup(t *testing.T) (*velerov1.Backup, client.Client) {
	t.Helper()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}}
	b.Status.Phase = velerov1.BackupPhaseInProgress
	b.Status.Progress = &velerov1.BackupProgress{TotalItems: 10, ItemsBackedUp: 3}
	require.NoError(t, claim.Set(b, claim.Claim{Owner: "runner-1", Epoch: 1}))
	return b, fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(b).Build()
}

func TestGetProgress(t *testing.T) {
	_, c := newBackup(t)
	api := dialServer(t, c)
	got, err := api.GetProgress(t.Context(), &backupv1.GetProgressRequest{Name: "b"})
	require.NoError(t, err)
	p := got.GetProgress()
	require.Equal(t, "InProgress", p.GetPhase())
	require.Equal(t, "runner-1", p.GetHolder())
	require.Equal(t, int64(3), p.GetItemsBackedUp())
	require.Nil(t, p.GetStartTime())
	_, err = api.GetProgress(t.Context(), &backupv1.GetProgressRequest{Name: "absent"})
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestWatchProgressEndsWithTheTerminalPhase(t *testing.T) {
	b, c := newBackup(t)
	stream, err := dialServer(t, c).WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "b"})
	require.NoError(t, err)
	first, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "InProgress", first.GetProgress().GetPhase())
	now := metav1.NewTime(time.Unix(5, 0))
	require.NoError(t, kube.Update(t.Context(), c, c, b, func(b *velerov1.Backup) error {
		b.Status.Phase, b.Status.CompletionTimestamp = velerov1.BackupPhaseCompleted, &now
		return nil
	}))
	last, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "Completed", last.GetProgress().GetPhase())
	require.Empty(t, last.GetProgress().GetHolder())
	_, err = stream.Recv()
	require.EqualError(t, err, "EOF")
}
