package main

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// makeVolume makes a tree with every kind of entry that a volume may have.
func makeVolume(t *testing.T) string {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	mustWrite(t, path("text"), "hello")
	mustWrite(t, path("empty"), "")
	mustWrite(t, path(".kopiaignore"), "*\n")
	mustWrite(t, path("cache/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n")
	mustWrite(t, path("cache/kept"), "data of the user")
	mustWrite(t, path("placeholder.kopia-entry"), "no placeholder")
	mustWrite(t, path("with \"quotes\"\nand lines, ü"), "x")
	mustWrite(t, path("program"), "#!/bin/sh")
	mustWrite(t, path("a/b/c/d"), "deep")
	require.NoError(t, os.Mkdir(path("nothing"), 0o700))
	require.NoError(t, os.Mkdir(path("lost+found"), 0o700)) // as ext4 has it
	require.NoError(t, os.Symlink("/etc/passwd", path("absolute")))
	require.NoError(t, os.Symlink("../../..", path("a/up")))
	require.NoError(t, os.Symlink("nowhere", path("dangling")))
	require.NoError(t, os.Link(path("text"), path("second name")))
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	require.NoError(t, os.WriteFile(path("random"), random, 0o600))
	sparse, err := os.Create(path("sparse"))
	require.NoError(t, err)
	_, err = sparse.WriteAt(random[:100000], 9<<20)
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(32<<20))
	require.NoError(t, sparse.Close())

	require.NoError(t, unix.Mkfifo(path("fifo"), 0o600))
	require.NoError(t, unix.Mknod(path("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path("socket")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	require.NoError(t, unix.Setxattr(path("random"), "user.note", []byte("x"), 0))

	require.NoError(t, os.Lchown(path("dangling"), 12, 34))
	require.NoError(t, os.Chown(path("program"), 1000, 2000))
	require.NoError(t, os.Chmod(path("program"), 0o755|os.ModeSetuid|os.ModeSetgid))
	require.NoError(t, os.Chmod(path("nothing"), 0o777|os.ModeSticky))
	require.NoError(t, os.Chmod(path("empty"), 0))
	old := time.Date(2001, 2, 3, 4, 5, 6, 789012345, time.UTC)
	for _, name := range []string{"empty", "a/b", "a", "."} {
		require.NoError(t, os.Chtimes(path(name), old, old))
		old = old.Add(time.Hour)
	}
	return dir
}

// TestRoundTrip checks that a volume comes back as it was: content, modes, owners, times, holes.
func TestRoundTrip(t *testing.T) {
	b, volume := newBed(t), makeVolume(t)
	up := b.upload(volume, "web-0")
	require.Equal(t, outcome.Completed, up.Phase, up.Message)
	require.Equal(t, map[outcome.Rule]int64{
		outcome.FIFO: 1, outcome.Device: 1, outcome.Socket: 1, outcome.HardLink: 2, outcome.Sparse: 1, outcome.Attributes: 1,
	}, up.Rules)
	require.Contains(t, up.Entries, outcome.Entry{Path: "random", Rule: outcome.Attributes})
	require.Equal(t, []int64{12, 7, 3}, []int64{up.Files, up.Directories, up.Symlinks})

	target := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(target, "lost+found"), 0o700))
	down := b.restore(up.SnapshotID, target)
	require.Equal(t, outcome.Completed, down.Phase, down.Message)
	require.Equal(t, []int64{12, 7, 3, up.Bytes}, []int64{down.Files, down.Directories, down.Symlinks, down.Bytes})
	require.Equal(t, describe(t, volume), describe(t, target))
}

// TestIncremental checks that the next upload of a claim reads only what changed, whichever Pod has it.
func TestIncremental(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	mustWrite(t, filepath.Join(volume, "kept"), strings.Repeat("x", 5000))
	mustWrite(t, filepath.Join(volume, "changed"), "before")
	first := b.upload(volume, "web-0")
	require.Equal(t, []int64{5006, 5006}, []int64{first.Bytes, first.IncrementalBytes})
	mustWrite(t, filepath.Join(volume, "changed"), "after")
	second := b.upload(volume, "web-1")
	require.Equal(t, []int64{5005, 5}, []int64{second.Bytes, second.IncrementalBytes})
	target := t.TempDir()
	require.Equal(t, outcome.Completed, b.restore(second.SnapshotID, target).Phase)
	require.Equal(t, describe(t, volume), describe(t, target))
}

// TestName checks that a name which kopia would change is an error, and that the rest is stored.
func TestName(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	mustWrite(t, filepath.Join(volume, "good"), "x")
	mustWrite(t, filepath.Join(volume, "bad\xff"), "x")
	up := b.upload(volume, "web-0")
	require.Equal(t, outcome.PartiallyFailed, up.Phase)
	require.NotEmpty(t, up.Message)
	require.NotEmpty(t, up.SnapshotID)
	require.Equal(t, map[outcome.Rule]int64{outcome.Name: 1}, up.Rules)
	require.EqualValues(t, 1, up.Files)
}

// TestRestoreOver checks what becomes of entries that the target has.
func TestRestoreOver(t *testing.T) {
	b, volume, outside := newBed(t), t.TempDir(), t.TempDir()
	for _, name := range []string{"file", "linked", "dir/file", "link-to-dir/file"} {
		mustWrite(t, filepath.Join(volume, name), "new")
	}
	mustWrite(t, filepath.Join(outside, "file"), "outside")
	id := b.upload(volume, "web-0").SnapshotID
	target := t.TempDir()
	path := func(name string) string { return filepath.Join(target, name) }
	mustWrite(t, path("file"), "old")
	mustWrite(t, path("dir/extra"), "old")
	mustWrite(t, path("lost+found/kept"), "old")
	require.NoError(t, os.Symlink(filepath.Join(outside, "file"), path("linked")))
	require.NoError(t, os.Symlink(outside, path("link-to-dir")))

	refused := b.restore(id, target)
	require.Equal(t, outcome.Failed, refused.Phase)
	require.Contains(t, refused.Message, "not empty")
	kept, err := os.ReadFile(path("file"))
	require.NoError(t, err)
	require.Equal(t, "old", string(kept))

	over := b.restore(id, target, "--overwrite")
	require.Equal(t, outcome.Completed, over.Phase, over.Message)
	require.FileExists(t, path("dir/extra"))
	exact := b.restore(id, target, "--overwrite", "--delete-extra")
	require.Equal(t, outcome.Completed, exact.Phase, exact.Message)
	require.FileExists(t, path("lost+found/kept"))
	require.NoError(t, os.RemoveAll(path("lost+found")))
	require.NoError(t, os.Chtimes(target, time.Time{}, mustStat(t, volume).ModTime()))
	require.Equal(t, describe(t, volume), describe(t, target))
	left, err := os.ReadFile(filepath.Join(outside, "file"))
	require.NoError(t, err)
	require.Equal(t, "outside", string(left))

	require.NoError(t, os.Remove(path("file")))
	mustWrite(t, path("file/inside"), "old")
	clash := b.restore(id, target, "--overwrite")
	require.Equal(t, outcome.Failed, clash.Phase)
	require.Contains(t, clash.Message, "file is a directory of the target")
}

func mustStat(t *testing.T, path string) os.FileInfo {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info
}

// TestDamage checks that nothing damaged is restored as if it were whole.
func TestDamage(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	mustWrite(t, filepath.Join(volume, "file"), strings.Repeat("data", 10000))
	truncate := func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, mustStat(t, path).Size()/2)) }
	flip := func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for i := range data {
			data[i] ^= 1
		}
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	remove := func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }
	for name, c := range map[string]struct {
		blobs   string
		damage  func(*testing.T, string)
		phase   outcome.Phase
		message string
	}{
		"truncated data":     {"p", truncate, outcome.PartiallyFailed, "not whole: 1"},
		"changed data":       {"p", flip, outcome.PartiallyFailed, "not whole: 1"},
		"missing data":       {"p", remove, outcome.PartiallyFailed, "not whole: 1"},
		"changed directory":  {"q", flip, outcome.Failed, "damaged"},
		"missing index":      {"x", remove, outcome.Failed, "does not have the snapshot"},
		"changed index":      {"x", flip, outcome.Failed, "damaged"},
		"changed repository": {"kopia.repository", flip, outcome.Failed, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			id := b.upload(volume, "web-0").SnapshotID
			found := b.blobs(c.blobs)
			require.NotEmpty(t, found)
			for _, path := range found {
				c.damage(t, path)
			}
			target := t.TempDir()
			down := b.restore(id, target)
			require.Equal(t, c.phase, down.Phase, down.Message)
			require.Contains(t, down.Message, c.message)
			if c.phase == outcome.PartiallyFailed {
				require.Equal(t, map[outcome.Rule]int64{outcome.Damaged: 1}, down.Rules)
				require.Equal(t, "file", down.Entries[0].Path)
			}
			require.NoFileExists(t, filepath.Join(target, "file"))
		})
	}
}
