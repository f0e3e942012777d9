package plugintest_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
)

func startStores(t *testing.T) (*plugintest.Process, *memory) {
	t.Helper()
	m := &memory{objects: map[string][]byte{}}
	return plugintest.Start(t, (&plugin.Registry{}).ObjectStore("a.io/store", constructorOf[plugin.ObjectStore](m))), m
}

func TestObjectStoreKeepsObjects(t *testing.T) {
	process, m := startStores(t)
	store := process.ObjectStore("a.io/store")
	require.ErrorContains(t, store.Init(t.Context(), nil), "region is missing")
	require.NoError(t, store.Init(t.Context(), map[string]string{"region": "r", "bucket": "b"}))
	require.Equal(t, map[string]string{"region": "r", "bucket": "b"}, m.config)

	large := bytes.Repeat([]byte("0123456789abcde"), 20_000) // several messages either way, the last one short
	require.NoError(t, store.PutObject(t.Context(), "b", "backups/x/x.tar.gz", bytes.NewReader(large)))
	require.NoError(t, store.PutObject(t.Context(), "b", "backups/y/log", iotest.OneByteReader(strings.NewReader("line"))))
	for key, want := range map[string]string{"backups/x/x.tar.gz": string(large), "backups/y/log": "line"} {
		body, err := store.GetObject(t.Context(), "b", key)
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.True(t, want == string(got), key)
	}
	exists, err := store.ObjectExists(t.Context(), "b", "backups/y/log")
	require.NoError(t, err)
	require.True(t, exists)
	prefixes, err := store.ListCommonPrefixes(t.Context(), "b", "/", "backups/")
	require.NoError(t, err)
	require.Equal(t, []string{"backups/x/", "backups/y/"}, prefixes)
	require.NoError(t, store.DeleteObject(t.Context(), "b", "backups/x/x.tar.gz"))
	keys, err := store.ListObjects(t.Context(), "b", "backups/")
	require.NoError(t, err)
	require.Equal(t, []string{"backups/y/log"}, keys)
	url, err := store.CreateSignedURL(t.Context(), "b", "k", 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "https://b.example/k?ttl=10m0s", url)
}

func TestObjectStoreErrors(t *testing.T) {
	process, m := startStores(t)
	store := process.ObjectStore("a.io/store")
	body, err := store.GetObject(t.Context(), "b", "none")
	require.NoError(t, err)
	_, err = io.ReadAll(body)
	require.ErrorContains(t, err, "no object none")

	require.ErrorContains(t, store.PutObject(t.Context(), "b", "empty", strings.NewReader("")), "no message came")
	broken := errors.New("the source broke")
	require.ErrorIs(t, store.PutObject(t.Context(), "b", "half", io.MultiReader(bytes.NewReader(make([]byte, 100_000)), iotest.ErrReader(broken))), broken)
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(t, m.objects, "a body that broke off is no object")
	_, err = store.CreateSignedURL(t.Context(), "b", "k", 0)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "ttl:")
	_, err = process.ObjectStore("a.io/other").ObjectExists(t.Context(), "b", "k")
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestVolumeSnapshotter(t *testing.T) {
	d := &disks{}
	process := plugintest.Start(t, (&plugin.Registry{}).VolumeSnapshotter("a.io/disks", constructorOf[plugin.VolumeSnapshotter](d)))
	s := process.VolumeSnapshotter("a.io/disks")
	require.NoError(t, s.Init(t.Context(), map[string]string{"zone": "z"}))
	volume := plugintest.Object(t, `{"kind":"PersistentVolume","metadata":{"name":"pv"},"spec":{"disk":"v1"}}`)
	id, err := s.GetVolumeID(t.Context(), volume)
	require.NoError(t, err)
	require.Equal(t, "v1", id)
	kind, iops, err := s.GetVolumeInfo(t.Context(), id, "z")
	require.NoError(t, err)
	require.Equal(t, "fast-v1-z", kind)
	require.Equal(t, int64(4000), iops)
	snapshot, err := s.CreateSnapshot(t.Context(), id, "z", map[string]string{"velero.io/backup": "b"})
	require.NoError(t, err)
	require.Equal(t, "snap-v1-z-b", snapshot)
	restored, err := s.CreateVolumeFromSnapshot(t.Context(), snapshot, kind, "z", iops)
	require.NoError(t, err)
	require.Equal(t, "vol-of-snap-v1-z-b-fast-v1-z-z-4000", restored)
	changed, err := s.SetVolumeID(t.Context(), volume, restored)
	require.NoError(t, err)
	id, err = s.GetVolumeID(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, restored, id)
	require.NoError(t, s.DeleteSnapshot(t.Context(), snapshot))
	require.Equal(t, []string{snapshot}, d.deleted)
	_, err = s.GetVolumeID(t.Context(), plugintest.Object(t, `{"spec":{"disk":7}}`))
	require.Error(t, err)
}
