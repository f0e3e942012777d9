package operations

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// readTarball reads the tarball of a backup as a program that unpacks it: of two entries of one path the last
// one counts.
func (b *bed) readTarball(t *testing.T, backup string) map[string][]byte {
	t.Helper()
	return untarFiles(t, b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+".tar.gz"))
}

func untarFiles(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	files := tar.NewReader(bytes.NewReader(text))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found[header.Name], err = io.ReadAll(files)
		require.NoError(t, err)
	}
}

// storedAgain has operations whose custom resources are stored as they are at the end.
func (b *bed) storedAgain(t *testing.T) {
	const name = "again"
	b.Namespace(t, name)
	b.controller.holdOperations(name)
	b.createOwnObject(t, name, "first", operationOrder{})
	b.createVendorObject(t, name, "second", operationOrder{})
	b.Backup(t, name, b.bucket, name)
	waiting := b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	b.controller.releaseHeld(name)
	backup := b.awaitEnd(t, name, velerov1.BackupPhaseCompleted, 2, 0)
	require.Zero(t, backup.Status.Errors+backup.Status.Warnings, b.readResults(t, name))
	require.GreaterOrEqual(t, backup.Status.Progress.ItemsBackedUp, waiting.Status.Progress.ItemsBackedUp)

	stored, listed := b.readTarball(t, name), b.readManifest(t, name)
	tarball := b.bucket.Read(t, "backups/"+name+"/"+name+".tar.gz")
	var first workObject
	for _, w := range b.worksOf(t, name) {
		path := "resources/works.operations.example.com/namespaces/again/" + w.Name + ".json"
		require.Contains(t, stored, path)
		var last workObject
		require.NoError(t, json.Unmarshal(stored[path], &last))
		require.Equal(t, []string{done, "Ended"}, []string{last.Spec.Result, last.Status.Phase}, path)
		require.Equal(t, stored[path], stored["resources/works.operations.example.com/v1-preferredversion/namespaces/again/"+w.Name+".json"])
		require.Contains(t, listed, path)
		item := listed[path]
		require.Equal(t, hashOf(stored[path]), item.SHA256, "the manifest lists what the tarball gives")
		require.Equal(t, last.ResourceVersion, item.ResourceVersion)
		zipped, err := gzip.NewReader(bytes.NewReader(tarball[item.Offset:][:item.Length]))
		require.NoError(t, err)
		member, err := io.ReadAll(zipped)
		require.NoError(t, err)
		require.Equal(t, stored[path], untarFiles(t, member)[path], "where the manifest says")
		if w.Spec.Item == "first" {
			first = w
		}
	}
	var resources map[string][]string
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, "backups/"+name+"/"+name+"-resource-list.json.gz"), &resources))
	require.Len(t, resources[group+"/v1/Work"], 2, "each is listed once")
	require.Contains(t, string(stored["resources/configmaps/namespaces/again/first.json"]), first.Name, "what Start made of its item")

	b.Restore(t, name, name, name, "later")
	r := b.RestoreEnds(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	restored := &workList{}
	require.NoError(t, b.works.List(t.Context(), restored))
	results := 0
	for _, w := range restored.Items {
		if w.Namespace == "later" {
			require.Equal(t, done, w.Spec.Result, "the later state comes back")
			results++
		}
	}
	require.Equal(t, 2, results)
}

func hashOf(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// readManifest reads the manifest of a backup, by path.
func (b *bed) readManifest(t *testing.T, backup string) map[string]manifest.Item {
	t.Helper()
	var key string
	for _, k := range b.bucket.Keys(t) {
		if strings.HasPrefix(k, "backups/"+backup+"/") && strings.HasSuffix(k, "manifest.json.gz") {
			key = k
		}
	}
	file := b.bucket.Read(t, key)
	reader, err := manifest.Open(t.Context(), ranges(file), int64(len(file)))
	require.NoError(t, err)
	found := map[string]manifest.Item{}
	for item, err := range reader.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		require.NotContains(t, found, item.Path)
		found[item.Path] = item
	}
	return found
}

// ranges reads a file that is in memory.
type ranges []byte

// ReadRange implements manifest.RangeReader.
func (r ranges) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(r), off, n)), nil
}
