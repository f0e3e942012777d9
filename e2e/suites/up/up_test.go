package up

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const patience = testbed.Patience

// TestUp shares one control plane; each part uses a namespace of its own, as two installations on
// one cluster would.
func TestUp(t *testing.T) {
	// Without the Deployment controller a test can say how many replicas are ready.
	cluster, err := testbed.Start(t.Context(), testbed.Config{Dir: t.TempDir(), Log: t.Output(), ControllerArgs: []string{"--controllers=*,-deployment-controller"}})
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	c, err := client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	cli := func(t *testing.T, namespace string) *product.CLI {
		t.Helper()
		return &product.CLI{Binary: binary, Kubeconfig: cluster.Kubeconfig(), Namespace: namespace, Output: t.Output()}
	}
	t.Run("sets up, stops and starts again", func(t *testing.T) { startTwice(t, c, cli(t, "twice")) })
	t.Run("serves its owner only", func(t *testing.T) { serveOwner(t, cli(t, "owner")) })
	t.Run("refuses a data directory in use", func(t *testing.T) { refuseUsedDirectory(t, cli(t, "used")) })
	t.Run("refuses a live Velero server", func(t *testing.T) { refuseVelero(t, c, cli(t, "live")) })
	t.Run("keeps locations it finds", func(t *testing.T) { keepLocations(t, c, cli(t, "theirs")) })
	t.Run("refuses bad flags", func(t *testing.T) { refuseFlags(t, cli(t, "flags")) })
	t.Run("says what is in the way of a port", func(t *testing.T) { nameThePort(t, cli(t, "port")) })
}

func startUp(t *testing.T, cli *product.CLI, dir string, args ...string) *product.Server {
	t.Helper()
	server, err := cli.Up(t.Context(), dir, append([]string{"--free-ports"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	return server
}

func startTwice(t *testing.T, c client.Client, cli *product.CLI) {
	t.Helper()
	dir := t.TempDir()
	server := startUp(t, cli, dir, "--runners", "2")
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: cli.Namespace}, &corev1.Namespace{}))
	location := &velerov1.BackupStorageLocation{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: cli.Namespace, Name: "default"}, location))
	require.Equal(t, velerov1.LocationPhaseAvailable, location.Status.Phase)
	require.Equal(t, filepath.Join(server.DataDir, "objects"), location.Spec.Config["path"])
	out, err := cli.Run(t.Context(), "version")
	require.NoError(t, err)
	require.Contains(t, out, "Server: v1.18.")

	server.Shutdown()
	require.NoError(t, server.Err(), "SIGTERM ends it with exit code 0")
	log, err := os.ReadFile(server.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "msg=stopped")
	require.NotContains(t, string(log), "panic")

	again := startUp(t, cli, dir)
	again.Shutdown()
	require.NoError(t, again.Err())
}

// requireRefused runs `holdfast up`, which has to end by itself, and returns what it said.
func requireRefused(t *testing.T, cli *product.CLI, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := cli.Run(ctx, append([]string{"up"}, args...)...)
	var exit *product.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.Code)
	return exit.Output
}

// serveOwner calls every service without the token, as another user of the machine would, and one
// as the owner's command does.
func serveOwner(t *testing.T, cli *product.CLI) {
	t.Helper()
	server := startUp(t, cli, t.TempDir())
	addresses := map[string]string{}
	require.Eventually(t, func() bool { // each service logs its address after it counts as ready
		log, err := os.ReadFile(server.LogPath())
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`service=(\S+) .* ready=true grpc=(\S+)`).FindAllStringSubmatch(string(log), -1) {
			addresses[found[1]] = found[2]
		}
		return len(addresses) == 6
	}, patience, 20*time.Millisecond)
	conn, err := grpc.NewClient(addresses["manifest-indexer"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = manifestv1.NewManifestServiceClient(conn).GetItem(t.Context(), &manifestv1.GetItemRequest{})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	queue := []string{"queue", "get", "--queue-address", addresses["queue-scheduler"]}
	_, err = cli.Run(t.Context(), queue...)
	require.NoError(t, err, "found by the address")
	_, err = cli.Run(t.Context(), append(queue, "--data-dir", server.DataDir)...)
	require.NoError(t, err)
	t.Setenv("HOME", t.TempDir())
	_, err = cli.Run(t.Context(), queue...)
	require.ErrorContains(t, err, "--data-dir")
}

func refuseUsedDirectory(t *testing.T, cli *product.CLI) {
	t.Helper()
	server := startUp(t, cli, t.TempDir())
	require.Contains(t, requireRefused(t, cli, "--free-ports", "--data-dir", server.DataDir), "in use")
}

func refuseVelero(t *testing.T, c client.Client, cli *product.CLI) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cli.Namespace}}))
	labels := map[string]string{"component": "velero"}
	velero := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cli.Namespace, Name: "velero", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Image: "velero"}}}},
		},
	}
	require.NoError(t, c.Create(t.Context(), velero))
	velero.Status.Replicas, velero.Status.ReadyReplicas = 1, 1
	require.NoError(t, c.Status().Update(t.Context(), velero))
	out := requireRefused(t, cli, "--free-ports", "--data-dir", t.TempDir())
	require.Contains(t, out, "a Velero server is running")
	require.Contains(t, out, "--allow-velero")
	startUp(t, cli, t.TempDir(), "--allow-velero")
}

func keepLocations(t *testing.T, c client.Client, cli *product.CLI) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cli.Namespace}}))
	theirs := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: cli.Namespace, Name: "theirs"},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "holdfast.io/file", Config: map[string]string{"path": t.TempDir()},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "missing"}},
		},
	}
	require.NoError(t, c.Create(t.Context(), theirs))
	startUp(t, cli, t.TempDir()) // ready although theirs is not: it is not the default
	list := &velerov1.BackupStorageLocationList{}
	require.NoError(t, c.List(t.Context(), list, client.InNamespace(cli.Namespace)))
	require.Len(t, list.Items, 1)
}

func refuseFlags(t *testing.T, cli *product.CLI) {
	t.Helper()
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"--runners":     {"--data-dir", dir, "--runners", "0"},
		"--data-dir":    {"--data-dir", ""},
		"--log-level":   {"--data-dir", dir, "--log-level", "loud"},
		"--kubecontext": {"--data-dir", dir, "--kubecontext", "other"},
		"unknown flag":  {"--data-dir", dir, "--plugins", "x"},
		"kubeconfig":    {"--data-dir", dir, "--kubeconfig", filepath.Join(dir, "absent")},
	} {
		require.Contains(t, requireRefused(t, cli, args...), want)
	}
}

// nameThePort runs up where another program has one of the ports.
func nameThePort(t *testing.T, cli *product.CLI) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:8446")
	if err == nil { // else another process has it, which serves as well
		defer func() { require.NoError(t, listener.Close()) }()
	}
	out := requireRefused(t, cli, "--data-dir", t.TempDir())
	require.Contains(t, out, "address already in use")
}
