// Package volumedata_test runs volume-mover as a process.
package volumedata_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// TestMoverOnS3 checks that a volume comes back from a bucket, and that its repository is where Velero has it.
func TestMoverOnS3(t *testing.T) {
	server, err := testbed.StartS3(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	require.NoError(t, server.CreateBucket(t.Context(), "bucket"))

	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	location, err := json.Marshal(map[string]any{
		"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": map[string]any{"name": "default", "namespace": "velero"},
		"spec": map[string]any{
			"provider": "aws", "config": server.LocationConfig(), "credential": map[string]any{"name": "keys", "key": "cloud"},
			"objectStorage": map[string]any{"bucket": "bucket", "prefix": "cluster"},
		},
	})
	require.NoError(t, err)
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "keys"}, "stringData": map[string]any{"cloud": server.CredentialsFile()},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path("location"), []byte(string(location)+"\n---\n"+string(secret)), 0o600))
	require.NoError(t, os.WriteFile(path("password"), []byte("secret"), 0o600))
	require.NoError(t, os.MkdirAll(path("volume/dir"), 0o755))
	require.NoError(t, os.Mkdir(path("restored"), 0o755))
	content := strings.Repeat("content of a file\n", 1<<20) // of several contents and ranges
	require.NoError(t, os.WriteFile(path("volume/dir/file"), []byte(content), 0o644))

	id, _ := runMover(t, dir, "upload", "--source", path("volume"), "--pod", "web-0", "--volume", "data", "--create-repository")
	runMover(t, dir, "restore", "--snapshot", id, "--target", path("restored"))
	restored, err := os.ReadFile(path("restored/dir/file"))
	require.NoError(t, err)
	require.Equal(t, content, string(restored))
	keys, err := server.Keys(t.Context(), "bucket")
	require.NoError(t, err)
	require.Contains(t, keys, "cluster/kopia/app/kopia.repository")
	require.Contains(t, keys, "cluster/kopia/app/udmrepo.Repository")
}
