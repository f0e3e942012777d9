package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kopia/kopia/fs/localfs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/blob/filesystem"
	"github.com/kopia/kopia/repo/blob/sharded"
	"github.com/kopia/kopia/repo/manifest"
	"github.com/kopia/kopia/repo/object"
	"github.com/kopia/kopia/snapshot"
	"github.com/kopia/kopia/snapshot/policy"
	kopiarestore "github.com/kopia/kopia/snapshot/restore"
	"github.com/kopia/kopia/snapshot/snapshotfs"
	kopiaupload "github.com/kopia/kopia/snapshot/upload"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// kopiaSuffix is what kopia's own storage of files puts behind the names of blobs.
const kopiaSuffix = ".f"

// kopiaStorage is kopia's own storage in a directory.
func kopiaStorage(t *testing.T, dir string) blob.Storage {
	st, err := filesystem.New(t.Context(), &filesystem.Options{Path: dir, Options: sharded.Options{DirectoryShards: []int{}}}, true)
	require.NoError(t, err)
	return st
}

// connectKopia opens a repository as Velero's uploader does: with kopia's own functions, as default@default.
func connectKopia(t *testing.T, st blob.Storage) repo.Repository {
	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, repo.Connect(t.Context(), config, st, password, &repo.ConnectOptions{ClientOptions: repo.ClientOptions{Hostname: "default", Username: "default"}}))
	r, err := repo.Open(t.Context(), config, password, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) })
	return r
}

// TestKopiaReads checks that kopia alone restores what the mover stored, and goes on from it.
func TestKopiaReads(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	mustWrite(t, filepath.Join(volume, "dir/file"), "content")
	id := b.upload(volume, "web-0").SnapshotID
	dir := t.TempDir()
	for _, path := range b.blobs("") {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)+kopiaSuffix), data, 0o600))
	}
	r := connectKopia(t, kopiaStorage(t, dir))
	ctx, source := t.Context(), snapshot.SourceInfo{Host: "default", UserName: "default", Path: "snapshot-pod-volume/kopia/app/web-0/data"}
	found, err := snapshot.ListSnapshots(ctx, r, source)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, manifest.ID(id), found[0].ID)
	root, err := snapshotfs.SnapshotRoot(r, found[0])
	require.NoError(t, err)
	output := &kopiarestore.FilesystemOutput{TargetPath: t.TempDir(), OverwriteDirectories: true}
	require.NoError(t, output.Init(ctx))
	_, err = kopiarestore.Entry(ctx, r, output, root, kopiarestore.Options{RestoreDirEntryAtDepth: math.MaxInt32})
	require.NoError(t, err)
	restored, err := os.ReadFile(filepath.Join(output.TargetPath, "dir/file"))
	require.NoError(t, err)
	require.Equal(t, "content", string(restored))

	local, err := localfs.Directory(volume)
	require.NoError(t, err)
	require.NoError(t, repo.WriteSession(ctx, r, repo.WriteSessionOptions{}, func(ctx context.Context, w repo.RepositoryWriter) error {
		m, err := kopiaupload.NewUploader(w).Upload(ctx, local, policy.BuildTree(nil, policy.DefaultPolicy), source, found[0])
		require.NoError(t, err)
		require.EqualValues(t, 1, m.Stats.CachedFiles)
		return err
	}))
}

// TestKopiaWrites checks that the mover restores what kopia alone stored, and goes on from it.
func TestKopiaWrites(t *testing.T) {
	b, volume, dir := newBed(t), t.TempDir(), t.TempDir()
	mustWrite(t, filepath.Join(volume, "dir/file"), "content")
	st := kopiaStorage(t, dir)
	require.NoError(t, repo.Initialize(t.Context(), st, nil, password))
	r := connectKopia(t, st)
	local, err := localfs.Directory(volume)
	require.NoError(t, err)
	var id manifest.ID
	require.NoError(t, repo.WriteSession(t.Context(), r, repo.WriteSessionOptions{}, func(ctx context.Context, w repo.RepositoryWriter) error {
		source := snapshot.SourceInfo{Host: "default", UserName: "default", Path: "snapshot-pod-volume/kopia/app/web-0/data"}
		m, err := kopiaupload.NewUploader(w).Upload(ctx, local, policy.BuildTree(nil, policy.DefaultPolicy), source)
		require.NoError(t, err)
		m.Tags = map[string]string{"snapshot-requester": "snapshot-pod-volume", "snapshot-uploader": "kopia"}
		id, err = snapshot.SaveSnapshot(ctx, w, m)
		return err
	}))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), kopiaSuffix); ok {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			mustWrite(t, filepath.Join(b.bucket, "kopia/app", name), string(data))
		}
	}
	target := t.TempDir()
	down := b.restore(string(id), target)
	require.Equal(t, outcome.Completed, down.Phase, down.Message)
	require.Equal(t, describe(t, volume), describe(t, target))
	up := b.upload(volume, "web-0")
	require.Equal(t, outcome.Completed, up.Phase, up.Message)
	require.Zero(t, up.IncrementalBytes)
}

// TestHostileSnapshot checks that whatever a snapshot has in it, nothing outside of the target is written.
func TestHostileSnapshot(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	mustWrite(t, filepath.Join(volume, "file"), "content")
	b.upload(volume, "web-0")
	entry := func(name string, kind snapshot.EntryType, id object.ID, mode snapshot.Permissions) *snapshot.DirEntry {
		return &snapshot.DirEntry{Name: name, Type: kind, ObjectID: id, Permissions: mode, FileSize: 7}
	}
	r := b.open()
	var file, link, inner object.ID
	save := func(entries ...*snapshot.DirEntry) (id manifest.ID) {
		require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) (err error) {
			put := func(text string) object.ID {
				o := w.NewObjectWriter(ctx, object.WriterOptions{})
				_, err := o.Write([]byte(text))
				require.NoError(t, err)
				written, err := o.Result()
				require.NoError(t, err)
				return written
			}
			directory := func(entries ...*snapshot.DirEntry) object.ID {
				written, err := snapshotfs.WriteDirManifest(ctx, w, ".", &snapshot.DirManifest{StreamType: "kopia:directory", Entries: entries}, "")
				require.NoError(t, err)
				return written
			}
			file, link = put("content"), put("../out2")
			inner = directory(entry("file", snapshot.EntryTypeFile, file, 0o644))
			for _, e := range entries {
				switch e.Type {
				case snapshot.EntryTypeDirectory:
					e.ObjectID = inner
				case snapshot.EntryTypeSymlink:
					e.ObjectID = link
				default:
					e.ObjectID = file
				}
			}
			id, err = snapshot.SaveSnapshot(ctx, w, &snapshot.Manifest{
				Source:    snapshot.SourceInfo{Host: "default", UserName: "default", Path: "x"},
				RootEntry: &snapshot.DirEntry{Type: snapshot.EntryTypeDirectory, ObjectID: directory(entries...), Permissions: 0o755},
			})
			return err
		}))
		return id
	}
	for name, c := range map[string]struct {
		entries []*snapshot.DirEntry
		phase   outcome.Phase
		message string
	}{
		"parent":           {[]*snapshot.DirEntry{entry("..", "d", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"path":             {[]*snapshot.DirEntry{entry("../out2/file", "f", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"absolute":         {[]*snapshot.DirEntry{entry("/tmp/file", "f", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"itself":           {[]*snapshot.DirEntry{entry(".", "d", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"no name":          {[]*snapshot.DirEntry{entry("", "f", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"zero byte":        {[]*snapshot.DirEntry{entry("a\x00b", "f", file, 0o777)}, outcome.Failed, "cannot be the name"},
		"through a link":   {[]*snapshot.DirEntry{entry("dir", "s", file, 0o777), entry("dir", "d", file, 0o777)}, outcome.Failed, "exists"},
		"over a link":      {[]*snapshot.DirEntry{entry("name", "s", file, 0o777), entry("name", "f", file, 0o777)}, outcome.Failed, "exists"},
		"device":           {[]*snapshot.DirEntry{entry("sda", "b", file, 0o777)}, outcome.PartiallyFailed, "not whole"},
		"setuid and other": {[]*snapshot.DirEntry{entry("tool", "f", file, snapshot.Permissions(0o755|os.ModeSetuid|os.ModeDevice|os.ModeSymlink))}, outcome.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			target := filepath.Join(parent, "target")
			require.NoError(t, os.Mkdir(target, 0o700))
			require.NoError(t, os.Mkdir(filepath.Join(parent, "out2"), 0o700))
			before := describe(t, filepath.Join(parent, "out2"))
			down := b.restore(string(save(c.entries...)), target, "--parallel", "1")
			require.Equal(t, c.phase, down.Phase, down.Message)
			require.Contains(t, down.Message, c.message)
			require.Equal(t, before, describe(t, filepath.Join(parent, "out2")))
			around, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Len(t, around, 2)
			if c.phase == outcome.Completed {
				require.Equal(t, 0o755|os.ModeSetuid, mustStat(t, filepath.Join(target, "tool")).Mode())
			}
		})
	}
}
