package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// newForwarder returns a server of an instance that works on no restore, and connects to others as the service does.
func newForwarder(t *testing.T, c client.Client, instance string, clk *clocktesting.FakeClock) *restoreServer {
	t.Helper()
	s := newServer(c, "velero", logs{}, instance, clk)
	s.holders = operationhome.NewClient(claim.NewPeers(c, "velero", clk), func(_, address string) (*grpc.ClientConn, error) {
		return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(tokenOfCaller{}))
	}, nil)
	t.Cleanup(s.holders.Close)
	return s
}

// tokenOfCaller presents the token of the call's own caller, as service.Runtime.Dial does.
type tokenOfCaller struct{}

func (tokenOfCaller) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if given := metadata.ValueFromIncomingContext(ctx, "authorization"); len(given) == 1 {
		return map[string]string{"authorization": given[0]}, nil
	}
	return nil, errgrpc.ErrUnauthenticated
}

func (tokenOfCaller) RequireTransportSecurity() bool { return false }

// createLease creates the Lease of an instance; without an owner it was released.
func createLease(t *testing.T, c client.Client, instance, owner, address string) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: instance, Annotations: map[string]string{holdfast.AnnotationAddress: address}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &owner, LeaseDurationSeconds: ptr.To(int32(30))},
	}))
}

func TestAnyInstanceSendsTheLogOfARestore(t *testing.T) {
	c, r := newRestoreObject(t) // which runner-1 holds
	tail := joblog.NewTail(1 << 20)
	tail.Add("one\n")
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	_, address := startServer(t, newServer(c, "velero", logs{tails: map[types.UID]*joblog.Tail{"u": tail}}, "runner-1", clk))
	createLease(t, c, "runner-1", "runner-1", address)
	api, _ := startServer(t, newForwarder(t, c, "runner-2", clk))
	text, err := readLog(t, api, &restorev1.StreamLogsRequest{Name: "r"})
	require.EqualError(t, err, "EOF")
	require.Equal(t, "one\n", text)

	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer of ann")
	stream, err := api.StreamLogs(ctx, &restorev1.StreamLogsRequest{Name: "r", Follow: true})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	tail.Add("two\n")
	r.Status.Phase = velerov1.RestorePhaseCompleted
	require.NoError(t, c.Update(t.Context(), r))
	clk.Step(mark.ProgressPeriod) // both wait for it
	m, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "two\n", m.GetText())
	_, err = stream.Recv()
	require.EqualError(t, err, "EOF")
}

// An address may lead to another instance than that of the Lease: each Pod's own loopback, without TLS.
func TestAForwardedCallIsNotForwardedAgain(t *testing.T) {
	c, _ := newRestoreObject(t)
	api, address := startServer(t, newForwarder(t, c, "runner-2", clocktesting.NewFakeClock(time.Unix(0, 0))))
	createLease(t, c, "runner-1", "runner-1", address)
	_, err := readLog(t, api, &restorev1.StreamLogsRequest{Name: "r"})
	require.ErrorIs(t, err, errgrpc.ErrPrecondition)
	require.ErrorContains(t, err, "instance runner-1 works on restore")
}

func TestAHolderThatCannotBeReachedIsNamed(t *testing.T) {
	for name, lease := range map[string]struct{ owner, address string }{
		"nothing listens": {"runner-1", "127.0.0.1:1"}, "no address": {"runner-1", ""}, "it has ended": {"", "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newRestoreObject(t)
			createLease(t, c, "runner-1", lease.owner, lease.address)
			api, _ := startServer(t, newForwarder(t, c, "runner-2", clocktesting.NewFakeClock(time.Unix(0, 0))))
			_, err := readLog(t, api, &restorev1.StreamLogsRequest{Name: "r"})
			require.ErrorIs(t, err, errgrpc.ErrUnavailable)
			require.ErrorContains(t, err, "instance runner-1")
		})
	}
}
