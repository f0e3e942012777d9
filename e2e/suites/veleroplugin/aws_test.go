//go:build velero

package veleroplugin_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	patience  = testbed.Patience
	tick      = 100 * time.Millisecond
	namespace = "velero"
	bucket    = "backups"
	prefix    = "team/one/"
	awsPlugin = "velero-plugin-for-aws"
)

// installAWS puts Velero's plugin for AWS, unmodified, into a directory.
func installAWS(t *testing.T, dir string) {
	t.Helper()
	binary, err := testbed.Binary(awsPlugin)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(binary, filepath.Join(dir, awsPlugin)))
}

// awsBed is `holdfast up` with the plugin, an S3 server and a location in it that the plugin
// serves.
type awsBed struct {
	*product.CLI
	c      client.Client
	s3     *testbed.S3
	server *product.Server
	dir    string
}

func newAWSBed(t *testing.T) *awsBed {
	t.Helper()
	b := &awsBed{dir: t.TempDir(), s3: testbed.StartS3T(t)}
	require.NoError(t, b.s3.CreateBucket(t.Context(), bucket))
	plugins := filepath.Join(b.dir, "plugins")
	require.NoError(t, os.MkdirAll(plugins, 0o700))
	installAWS(t, plugins)
	cluster := testbed.StartT(t)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	b.CLI = &product.CLI{Binary: binary, Kubeconfig: cluster.Kubeconfig(), Namespace: namespace, Output: t.Output()}
	b.c, err = client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.server, err = b.Up(t.Context(), b.dir, "--free-ports")
	require.NoError(t, err)
	t.Cleanup(b.server.Shutdown)
	b.createLocation(t)
	return b
}

func (b *awsBed) createLocation(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"}, StringData: map[string]string{"cloud": b.s3.CredentialsFile()},
	}
	require.NoError(t, b.c.Create(t.Context(), secret))
	loc := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "aws", Annotations: map[string]string{holdfast.AnnotationObjectStore: "plugin"}},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Config: b.s3.LocationConfig(),
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: bucket, Prefix: prefix}},
			Credential:  &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "cloud"},
		},
	}
	require.NoError(t, b.c.Create(t.Context(), loc))
	require.Eventually(t, func() bool {
		require.NoError(t, b.c.Get(t.Context(), client.ObjectKeyFromObject(loc), loc))
		return loc.Status.Phase == velerov1.LocationPhaseAvailable
	}, patience, tick, "the location does not become available; see %s", b.server.LogPath())
	require.Contains(t, loc.Status.Message, "must not be shared by two clusters")
}

func (b *awsBed) runCLI(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.Run(t.Context(), args...)
	require.NoError(t, err, "log: %s", b.server.LogPath())
	return out
}

func (b *awsBed) listKeys(t *testing.T, under string) []string {
	t.Helper()
	all, err := b.s3.Keys(t.Context(), bucket)
	require.NoError(t, err)
	var keys []string
	for _, key := range all {
		require.True(t, strings.HasPrefix(key, prefix), "%s is outside the location", key)
		if rest, ok := strings.CutPrefix(key, prefix+under); ok {
			keys = append(keys, rest)
		}
	}
	return keys
}

// TestVelerosPluginForAWSServesALocation takes a backup through its whole life in a location whose
// annotation asks for the plugin, although Holdfast serves S3 itself.
func TestVelerosPluginForAWSServesALocation(t *testing.T) {
	b := newAWSBed(t)
	const objects = 300
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	require.NoError(t, b.c.Create(t.Context(), shop))
	for i := range objects {
		require.NoError(t, b.c.Create(t.Context(), configMap(i)))
	}

	b.runCLI(t, "backup", "create", "b1", "--storage-location", "aws", "--include-namespaces", "shop", "--wait")
	require.Contains(t, b.listKeys(t, "backups/b1/"), "velero-backup.json")
	require.Eventually(t, func() bool { return len(b.listKeys(t, "backups/b1/parts/")) == 0 }, patience, tick, "parts are removed")
	b.wroteByPlugin(t, prefix+"backups/b1/b1.tar.gz")

	file := filepath.Join(b.dir, "b1.tar.gz")
	b.runCLI(t, "backup", "download", "b1", "-o", file)
	require.GreaterOrEqual(t, countEntries(t, file), 2*objects)
	require.NotEmpty(t, b.runCLI(t, "backup", "logs", "b1"))

	require.NoError(t, b.c.Delete(t.Context(), shop))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(b.c.Get(t.Context(), types.NamespacedName{Name: "shop"}, &corev1.Namespace{}))
	}, patience, tick)
	b.runCLI(t, "restore", "create", "r1", "--from-backup", "b1", "--wait")
	for i := range objects {
		got := &corev1.ConfigMap{}
		want := configMap(i)
		require.NoError(t, b.c.Get(t.Context(), client.ObjectKeyFromObject(want), got))
		require.Equal(t, want.Data, got.Data)
	}
	require.NotEmpty(t, b.listKeys(t, "restores/r1/"))
	require.NotEmpty(t, b.runCLI(t, "restore", "logs", "r1"))

	b.runCLI(t, "backup", "delete", "b1", "--confirm", "--wait")
	require.Empty(t, b.listKeys(t, "backups/b1/"))
	b.server.Shutdown()
	require.NoError(t, b.server.Err())
	require.Empty(t, runningProcesses(t, filepath.Join(b.dir, "plugins")), "no process of the plugin is left")
}

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("c%03d", i)},
		Data:       map[string]string{"value": fmt.Sprint(i)},
	}
}

// wroteByPlugin: what Holdfast's own S3 client writes bears a mark.
func (b *awsBed) wroteByPlugin(t *testing.T, key string) {
	t.Helper()
	head, err := b.s3.Client().HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)})
	require.NoError(t, err)
	require.NotContains(t, head.Metadata, "holdfast-write")
}

func countEntries(t *testing.T, path string) (n int) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	for r := tar.NewReader(unzipped); ; n++ {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return n
		}
		require.NoError(t, err)
	}
}

// runningProcesses returns the processes whose binary lies below a directory.
func runningProcesses(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	var found []string
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && strings.HasPrefix(path, dir) {
			found = append(found, link)
		}
	}
	return found
}
