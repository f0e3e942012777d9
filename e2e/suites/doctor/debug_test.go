package doctor_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// planted is wherever users put secrets.
const planted = "Planted-S3cret"

// runDebug runs `holdfast debug` and returns the files of the archive.
func (p *doctorPlace) runDebug(t *testing.T, namespace string, more ...string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	cli := p.newCLI(namespace)
	out, err := cli.Run(t.Context(), append([]string{"debug", "-o", path}, more...)...)
	require.NoError(t, err)
	require.Contains(t, out, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = cli.Run(t.Context(), "debug", "-o", path)
	require.ErrorContains(t, err, "--output", "nothing is overwritten")

	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	zip, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "holdfast-debug/")] = string(data)
	}
}

// testSecrets plants secrets in a namespace that nothing serves: half of the bundle is missing, and what
// is there has none of them.
func (p *doctorPlace) testSecrets(t *testing.T) {
	const namespace = "planted"
	p.createNamespace(t, namespace)
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: "default", Labels: map[string]string{"app.kubernetes.io/part-of": "holdfast"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"spec":{"config":{"key":"` + planted + `"}}}`},
	}
	require.NoError(t, p.client.Create(t.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"cloud": planted}}))
	require.NoError(t, p.client.Create(t.Context(), &velerov1.BackupStorageLocation{ObjectMeta: meta, Spec: velerov1.BackupStorageLocationSpec{
		Provider: "aws", Config: map[string]string{"region": "eu-1", "s3Url": "http://root:" + planted + "@127.0.0.1:1", "customKey": planted},
		StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "backups"}},
	}}))
	require.NoError(t, p.client.Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "runner", Image: "example.com/runner", Env: []corev1.EnvVar{{Name: "ANY", Value: planted}}, Args: []string{"--nats-url=nats://u:" + planted + "@nats"},
	}}}}))
	files := p.runDebug(t, namespace, append(unreachableFlags(), "--nats-url", "nats://u:"+planted+"@127.0.0.1:1")...)
	for name, text := range files {
		require.NotContains(t, text, planted, name)
	}
	require.Contains(t, files["objects/backupstoragelocations.velero.io.v1.yaml"], "region: eu-1")
	require.Contains(t, files["objects/pods.yaml"], "example.com/runner")
	require.Contains(t, files["doctor.json"], `"check": "definitions"`)
	require.Contains(t, files["problems.txt"], "queue.json: ")
	require.Contains(t, files["problems.txt"], "metrics/deletion.txt: ")
}
