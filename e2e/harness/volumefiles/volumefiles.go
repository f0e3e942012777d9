// Package volumefiles fills directories of volumes, describes what is in them, and reads what a repository has of them.
package volumefiles

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Write fills a volume with entries of several modes, owners and times.
func Write(t *testing.T, dir, text string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("tables/empty"), 0o750))
	require.NoError(t, os.WriteFile(at("tables/rows"), bytes.Repeat([]byte(text+"\n"), 10_000), 0o640))
	require.NoError(t, os.WriteFile(at(".hidden"), nil, 0o600))
	require.NoError(t, os.Symlink("tables/rows", at("link")))
	require.NoError(t, os.WriteFile(at("sparse"), []byte(text), 0o644))
	require.NoError(t, os.Truncate(at("sparse"), 16<<20))
	require.NoError(t, os.Chmod(at("tables/rows"), 0o640|fs.ModeSetgid))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(at("tables"), 1234, 5678))
		require.NoError(t, os.Chown(at(".hidden"), 999, 999))
	}
	then := time.Date(2020, 2, 3, 4, 5, 6, 789, time.UTC)
	require.NoError(t, os.Chtimes(at("tables/rows"), then, then))
	require.NoError(t, os.Chtimes(at("tables"), then, then))
}

// WriteDevice fills two MiB in the middle of a block device.
func WriteDevice(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte(text+"\n"), (2<<20)/(len(text)+1)), 11<<20)
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

// Describe maps each entry to what a backup keeps of it, which of a block device is its content. The time of the root is left out: a mover makes the
// directory .velero in it, and the init container removes that.
func Describe(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if info, err := os.Stat(root); err == nil && !info.IsDir() {
		data, err := os.ReadFile(root)
		require.NoError(t, err)
		found["device"] = fmt.Sprintf("%d bytes %x", len(data), sha256.Sum256(data))
		return found
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		status, content := info.Sys().(*syscall.Stat_t), ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x sparse %v", sha256.Sum256(data), status.Blocks*512 < status.Size)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		changed := info.ModTime().UTC().Format(time.RFC3339Nano)
		if path == root {
			changed = ""
		}
		name, err := filepath.Rel(root, path)
		found[name] = fmt.Sprintf("%v %d:%d %s %s", info.Mode(), status.Uid, status.Gid, changed, content)
		return err
	}))
	return found
}

// holes is what Describe says about holes of files, and times about a time.
var (
	holes = regexp.MustCompile(` sparse (true|false)$`)
	times = regexp.MustCompile(`[0-9-]+T[0-9:.]+Z`)
)

// DescribeKept is Describe without what Velero's restore does not keep: holes of files, nanoseconds of links, and times of
// directories, which become those of the newest entry below them.
func DescribeKept(t *testing.T, root string) map[string]string {
	t.Helper()
	entries := Describe(t, root)
	for name := range entries {
		entries[name] = holes.ReplaceAllString(entries[name], "")
		if strings.HasPrefix(entries[name], "L") || strings.HasPrefix(entries[name], "d") {
			entries[name] = times.ReplaceAllString(entries[name], "")
		}
	}
	return entries
}
