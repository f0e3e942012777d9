// Package access_test proves on a real API server that RBAC decides who may call a service.
package access_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace is that of the callers.
const namespace = "default"

// createToken creates an account and returns a token of it, for the API server or other audiences.
func createToken(t *testing.T, client kubernetes.Interface, account string, audiences ...string) string {
	t.Helper()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	request, err := accounts.CreateToken(t.Context(), account, &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// allowPaths lets an account call the methods whose paths match.
func allowPaths(t *testing.T, client kubernetes.Interface, account, paths string) {
	t.Helper()
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{paths}, Verbs: []string{"post"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// startService runs a service that has a queue service without methods.
func startService(t *testing.T, kubeconfig string) queuev1.QueueServiceClient {
	t.Helper()
	options := service.Defaults("queue-scheduler", service.Ports{})
	options.Kubeconfig, options.NATSURL, options.WorkDir = kubeconfig, testbed.StartNATST(t), t.TempDir()
	options.Auth = service.AuthKubernetes
	r, err := service.New(t.Context(), service.Base{
		Name: "queue-scheduler", Instance: service.NewInstance("queue-scheduler"), Options: options,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: clock.RealClock{}, Tracer: noop.NewTracerProvider(),
	})
	require.NoError(t, err)
	queuev1.RegisterQueueServiceServer(r.GRPC(), queuev1.UnimplementedQueueServiceServer{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	conn, err := grpc.NewClient(r.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-ended)
	})
	return queuev1.NewQueueServiceClient(conn)
}

// reviewerKubeconfig returns the kubeconfig of the account that the chart gives the queue-scheduler.
func reviewerKubeconfig(t *testing.T, cluster *testbed.Cluster) string {
	t.Helper()
	c, err := ctrlclient.New(cluster.RestConfig(), ctrlclient.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	return chart.Identities(t, cluster, c, namespace)["queue-scheduler"]
}

func TestRBACDecidesWhoCalls(t *testing.T) {
	cluster := testbed.StartT(t)
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	may, mayNot := createToken(t, client, "may"), createToken(t, client, "may-not")
	allowPaths(t, client, "may", "/holdfast.queue.v1.QueueService/*")
	queue := startService(t, reviewerKubeconfig(t, cluster))
	call := func(token string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := queue.ListQueue(ctx, &queuev1.ListQueueRequest{})
		return status.Code(err)
	}
	// The method is not there: getting as far as that is being let in. RBAC's own cache may take a
	// moment.
	require.Eventually(t, func() bool { return call(may) == codes.Unimplemented }, time.Minute, 100*time.Millisecond)
	require.Equal(t, codes.PermissionDenied, call(mayNot))
	require.Equal(t, codes.Unauthenticated, call(may+"x"))
}
