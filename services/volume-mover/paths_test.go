package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// newPathsVolume returns the ID of a snapshot, and its volume.
func newPathsVolume(t *testing.T, b *bed) (id, volume string) {
	t.Helper()
	volume = t.TempDir()
	mustWrite(t, filepath.Join(volume, "uploads/2024/a, b.jpg"), "stored")
	mustWrite(t, filepath.Join(volume, "uploads/2024/other"), "stored")
	mustWrite(t, filepath.Join(volume, "etc/app.conf"), "stored")
	mustWrite(t, filepath.Join(volume, "etc/deep/er"), "stored")
	mustWrite(t, filepath.Join(volume, "a\nb/$(HOME) -x'\"\\"), "stored")
	require.NoError(t, os.Symlink("/outside", filepath.Join(volume, "link")))
	for name, mode := range map[string]os.FileMode{"uploads": 0o750, "uploads/2024": 0o711, "uploads/2024/a, b.jpg": 0o604 | os.ModeSetuid} {
		require.NoError(t, os.Chmod(filepath.Join(volume, name), mode))
		require.NoError(t, os.Chtimes(filepath.Join(volume, name), time.Time{}, time.Unix(1e9, 5000)))
	}
	return b.upload(volume, "web-0").SnapshotID, volume
}

// Entries of the paths replace those of the target, and nothing else of it changes.
func TestPathsAreRestoredAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, volume := newPathsVolume(t, b)
	target := t.TempDir()
	at := func(name string) string { return filepath.Join(target, name) }
	mustWrite(t, at("etc/app.conf"), "changed since")
	mustWrite(t, at("etc/added"), "new")
	mustWrite(t, at("uploads/kept"), "new")
	mustWrite(t, at("lost"), "new")
	require.NoError(t, os.Chmod(at("uploads"), 0o705))
	outside := t.TempDir()
	mustWrite(t, filepath.Join(outside, "file"), "outside")
	require.NoError(t, os.Symlink(filepath.Join(outside, "file"), at("link")))
	require.NoError(t, os.Symlink(outside, at("etc/deep")))
	before := describe(t, target)

	special := "a\nb/$(HOME) -x'\"\\"
	down := b.restore(id, target, "--overwrite", "--path", "uploads/2024/a, b.jpg", "--path", "etc", "--path=link", "--path", special)
	require.Equal(t, outcome.Completed, down.Phase, down.Message)
	require.Equal(t, []int64{4, 2, 1}, []int64{down.Files, down.Directories, down.Symlinks})
	stored, after := describe(t, volume), describe(t, target)
	for _, name := range []string{"uploads/2024", "uploads/2024/a, b.jpg", "etc/app.conf", "etc/deep", "etc/deep/er", "link", "a\nb", special} {
		require.Equal(t, stored[name], after[name], name)
		delete(after, name)
		delete(before, name)
	}
	for _, name := range []string{".", "etc", "uploads"} { // their times
		delete(after, name)
		delete(before, name)
	}
	require.Equal(t, before, after)
	require.Equal(t, os.FileMode(0o705), mustStat(t, at("uploads")).Mode().Perm(), "a directory above a path stays as it is")
	left, err := os.ReadFile(filepath.Join(outside, "file"))
	require.NoError(t, err)
	require.Equal(t, "outside", string(left))
	require.NoFileExists(t, filepath.Join(outside, "er"))
}

// What cannot be restored as it is named changes nothing.
func TestPathsThatCannotBeRestored(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	target := t.TempDir()
	at := func(name string) string { return filepath.Join(target, name) }
	mustWrite(t, at("elsewhere/2024/a, b.jpg"), "new")
	require.NoError(t, os.Symlink("elsewhere", at("uploads")))
	mustWrite(t, at("link/inside"), "new")
	before := describe(t, target)
	for path, want := range map[string]string{
		"etc/none":              `snapshot ` + id + `: "etc/none" in the volume: not found`,
		"etc/app.conf/below":    `"etc/app.conf/below" in the volume: not found`,
		"uploads/2024/a, b.jpg": "uploads is a directory in the snapshot, and none in the target",
		"link":                  "link is a directory of the target",
	} {
		args := []string{"--overwrite", "--path", path}
		if path == "etc/none" { // nothing is written before all are found
			args = append(args, "--path=etc/app.conf")
		}
		down := b.restore(id, target, args...)
		require.Equal(t, outcome.Failed, down.Phase, path)
		require.Contains(t, down.Message, want)
		require.Equal(t, before, describe(t, target), path)
	}
}

// An entry that the repository has lost does not cost the one in the target.
func TestADamagedPathLeavesTheOldEntry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	for _, blob := range b.blobs("p") {
		require.NoError(t, os.Remove(blob))
	}
	target := t.TempDir()
	mustWrite(t, filepath.Join(target, "etc/app.conf"), "changed since")
	require.NoError(t, unix.Setxattr(filepath.Join(target, "etc/app.conf"), "user.note", []byte("x"), 0)) // which stays too
	require.NoError(t, os.Symlink("old", filepath.Join(target, "link")))
	before := describe(t, target)
	down := b.restore(id, target, "--overwrite", "--path=etc/app.conf", "--path=link")
	require.Equal(t, outcome.PartiallyFailed, down.Phase, down.Message)
	require.Equal(t, map[outcome.Rule]int64{outcome.Damaged: 2}, down.Rules)
	after := describe(t, target)
	delete(before, "etc")
	delete(after, "etc") // its time
	require.Equal(t, before, after)
}

// A directory that a restore made before it failed has its owner and mode, which the next restore does not change.
func TestAParentOfAnInterruptedRestoreIsUsable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	target := t.TempDir()
	at := func(name string) string { return filepath.Join(target, name) }
	mustWrite(t, at("link/in the way"), "new")
	down := b.restore(id, target, "--overwrite", "--path=uploads/2024/a, b.jpg", "--path=link")
	require.Equal(t, outcome.Failed, down.Phase)
	require.Equal(t, os.FileMode(0o750), mustStat(t, at("uploads")).Mode().Perm())
	require.Equal(t, os.FileMode(0o711), mustStat(t, at("uploads/2024")).Mode().Perm())
	down = b.restore(id, target, "--overwrite", "--path=uploads/2024/a, b.jpg")
	require.Equal(t, outcome.Completed, down.Phase, down.Message)
	require.Equal(t, os.FileMode(0o711), mustStat(t, at("uploads/2024")).Mode().Perm())
}

// Two restores of one path would give what one of them has half written the name of the entry.
func TestASecondRestoreOfPathsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	target := t.TempDir()
	mustWrite(t, filepath.Join(target, "etc/app.conf"), "changed since")
	before := describe(t, target)
	first, err := os.Open(target)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(first.Fd()), unix.LOCK_EX))
	down := b.restore(id, target, "--overwrite", "--path=etc/app.conf")
	require.Equal(t, outcome.Failed, down.Phase)
	require.Contains(t, down.Message, "another restore of files writes into the target")
	require.Equal(t, before, describe(t, target))
	require.NoError(t, first.Close())
	for range 2 { // the lock ends with its restore
		down = b.restore(id, target, "--overwrite", "--path=etc/app.conf")
		require.Equal(t, outcome.Completed, down.Phase, down.Message)
	}
}

// A snapshot has no ACLs for what replaces an entry that had some: the result says so.
func TestAttributesOfReplacedEntriesAreNoted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	for _, args := range [][]string{{"--overwrite"}, {"--overwrite", "--path=etc"}} {
		target := t.TempDir()
		for name, attribute := range map[string]string{"etc/app.conf": "user.note", "etc/deep/er": "", "etc/added": "user.note"} {
			mustWrite(t, filepath.Join(target, name), "changed since")
			if attribute != "" {
				require.NoError(t, unix.Setxattr(filepath.Join(target, name), attribute, []byte("x"), 0))
			}
		}
		down := b.restore(id, target, args...)
		require.Equal(t, outcome.Completed, down.Phase, down.Message)
		require.Equal(t, map[outcome.Rule]int64{outcome.Attributes: 1}, down.Rules, args)
		require.Equal(t, []outcome.Entry{{Path: "etc/app.conf", Rule: outcome.Attributes}}, down.Entries)
	}
}

func TestAttributesOfAFileThatADirectoryReplacesAreNoted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, _ := newPathsVolume(t, b)
	for _, args := range [][]string{{"--overwrite"}, {"--overwrite", "--path=etc"}} {
		target := t.TempDir()
		mustWrite(t, filepath.Join(target, "etc"), "was a file")
		require.NoError(t, unix.Setxattr(filepath.Join(target, "etc"), "user.note", []byte("x"), 0))
		down := b.restore(id, target, args...)
		require.Equal(t, outcome.Completed, down.Phase, down.Message)
		require.Equal(t, []outcome.Entry{{Path: "etc", Rule: outcome.Attributes}}, down.Entries)
	}
}
