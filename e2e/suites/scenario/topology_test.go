package scenario

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const bucket = "backups"

func TestOneProcessOnFiles(t *testing.T) {
	w := &world{cluster: testbed.StartT(t), location: "default"}
	w.cli = newCLI(t, w.cluster)
	server := startUp(t, w)
	w.useDirectory(filepath.Join(server.Bucket(), bucket))
	wholeLoop(t, w)
	stopsCleanly(t, server)
}

func TestSeparateProcessesOnS3(t *testing.T) {
	w := &world{cluster: testbed.StartT(t), location: "s3"}
	w.cli = newCLI(t, w.cluster)
	startFleet(t, w)
	w.useS3Bucket(t)
	wholeLoop(t, w)
}

// startUp runs `holdfast up` on the cluster until the test is done.
func startUp(t *testing.T, w *world) *product.Server {
	t.Helper()
	server, err := w.cli.Up(t.Context(), t.TempDir(), "--free-ports")
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	t.Cleanup(func() { showLog(t, server.LogPath()) })
	return server
}

// stopsCleanly requires exit code 0 after SIGTERM.
func stopsCleanly(t *testing.T, server *product.Server) {
	t.Helper()
	server.Shutdown()
	require.NoError(t, server.Err(), "SIGTERM ends with exit code 0")
}

// startFleet runs the six services as processes of their own.
func startFleet(t *testing.T, w *world) {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.restConfig())
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	f, err := fleet.Start(t.Context(), fleet.Config{Dir: t.TempDir(), Kubeconfig: w.cluster.Kubeconfig(), Rest: w.restConfig()})
	require.NoError(t, err)
	t.Cleanup(f.Stop)
	w.manifests = f.Of("manifest-indexer")[0].GRPC
	t.Cleanup(func() {
		for _, member := range f.Members {
			showLog(t, member.LogPath())
		}
	})
}

// showLog adds the end of a process's log to that of a failed test.
func showLog(t *testing.T, path string) {
	t.Helper()
	if t.Failed() {
		t.Logf("%s complains:\n%s", filepath.Base(path), testbed.Complaints(path, 8))
	}
}

// useDirectory makes a directory the world's bucket.
func (w *world) useDirectory(dir string) {
	w.keys = func(context.Context) ([]string, error) { return product.Files(dir) }
	w.read = func(_ context.Context, key string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, key)) }
}

// useS3Bucket starts an S3 server and makes a bucket in it the world's, reached through a location with
// provider aws.
func (w *world) useS3Bucket(t *testing.T) {
	t.Helper()
	server := testbed.StartS3T(t)
	require.NoError(t, server.CreateBucket(t.Context(), bucket))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "cloud-credentials", Namespace: "velero"},
		StringData: map[string]string{"cloud": server.CredentialsFile()},
	}
	client, err := kubernetes.NewForConfig(w.restConfig())
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets("velero").Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	createLocation(t, w, "aws", server.LocationConfig(), map[string]any{"name": "cloud-credentials", "key": "cloud"})
	w.keys = func(ctx context.Context) ([]string, error) { return server.Keys(ctx, bucket) }
	w.read = func(ctx context.Context, key string) ([]byte, error) {
		object, err := server.Client().GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
		if err != nil {
			return nil, err
		}
		defer func() { _ = object.Body.Close() }()
		return io.ReadAll(object.Body)
	}
}

var locations = schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backupstoragelocations"}

// createLocation creates the world's BackupStorageLocation and waits until the product says that it
// is available.
func createLocation(t *testing.T, w *world, provider string, config map[string]string, credential map[string]any) {
	t.Helper()
	settings := map[string]any{}
	for key, value := range config {
		settings[key] = value
	}
	spec := map[string]any{"provider": provider, "config": settings, "objectStorage": map[string]any{"bucket": bucket}}
	if credential != nil {
		spec["credential"] = credential
	}
	location := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
		"metadata": map[string]any{"name": w.location, "namespace": "velero"}, "spec": spec,
	}}
	client, err := dynamic.NewForConfig(w.restConfig())
	require.NoError(t, err)
	_, err = client.Resource(locations).Namespace("velero").Create(t.Context(), location, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		live, err := client.Resource(locations).Namespace("velero").Get(t.Context(), w.location, metav1.GetOptions{})
		if err != nil {
			return false
		}
		phase, _, _ := unstructured.NestedString(live.Object, "status", "phase")
		return phase == "Available"
	}, patience, 100*time.Millisecond, "the location gets available")
}
