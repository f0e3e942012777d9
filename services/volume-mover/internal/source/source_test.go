package source

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	kopiafs "github.com/kopia/kopia/fs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// list opens a volume of the files and returns its entries.
func list(t *testing.T, files ...string) (dir string, entries map[string]kopiafs.Entry, recorded func() map[string]outcome.Rule) {
	dir = t.TempDir()
	for _, name := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o600))
	}
	var mu sync.Mutex
	found := map[string]outcome.Rule{}
	v, err := Open(dir, time.Now(), func(path string, rule outcome.Rule, _ error) {
		mu.Lock()
		defer mu.Unlock()
		found[path] = rule
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	require.EqualValues(t, 7*len(files), v.Size(t.Context()))
	root, err := v.Root()
	require.NoError(t, err)
	entries = map[string]kopiafs.Entry{}
	require.NoError(t, kopiafs.IterateEntries(t.Context(), root, func(_ context.Context, e kopiafs.Entry) error {
		entries[e.Name()] = e
		return nil
	}))
	return dir, entries, func() map[string]outcome.Rule { mu.Lock(); defer mu.Unlock(); return found }
}

func requireRule(t *testing.T, want outcome.Rule, err error) {
	t.Helper()
	var entry *outcome.EntryError
	require.ErrorAs(t, err, &entry)
	require.Equal(t, want, entry.Rule)
}

// TestChanges checks what becomes of entries that change between the listing and their turn.
func TestChanges(t *testing.T) {
	dir, entries, recorded := list(t, "gone", "grown", "same", "now-directory", "now-link", "dir-gone/x", "dir-link/x")
	path := func(name string) string { return filepath.Join(dir, name) }
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "x"), []byte("outside"), 0o600))
	for _, name := range []string{"gone", "now-directory", "now-link", "dir-gone", "dir-link"} {
		require.NoError(t, os.RemoveAll(path(name)))
	}
	require.NoError(t, os.Mkdir(path("now-directory"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(outside, "x"), path("now-link")))
	require.NoError(t, os.Symlink(outside, path("dir-link")))

	for name, want := range map[string]outcome.Rule{"gone": outcome.Vanished, "now-directory": outcome.Unreadable, "now-link": outcome.Unreadable} {
		_, err := entries[name].(kopiafs.File).Open(t.Context())
		requireRule(t, want, err)
	}
	for name, want := range map[string]outcome.Rule{"dir-gone": outcome.Vanished, "dir-link": outcome.Unreadable} {
		_, err := entries[name].(kopiafs.Directory).Iterate(t.Context())
		requireRule(t, want, err)
	}
	for _, name := range []string{"grown", "same"} {
		r, err := entries[name].(kopiafs.File).Open(t.Context())
		require.NoError(t, err)
		if name == "grown" {
			require.NoError(t, os.WriteFile(path(name), []byte("longer content"), 0o600))
		}
		_, err = io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	require.Equal(t, map[string]outcome.Rule{"grown": outcome.Changed}, recorded())
}

// TestOrder checks that entries come in the order of their names, in which a restore reads them.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	v, err := Open(dir, time.Now(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	root, err := v.Root()
	require.NoError(t, err)
	var names []string
	require.NoError(t, kopiafs.IterateEntries(t.Context(), root, func(_ context.Context, e kopiafs.Entry) error {
		names = append(names, e.Name())
		return nil
	}))
	require.Len(t, names, 300)
	require.IsIncreasing(t, names)
}

// acl lets user 1000 read an entry, or, as the default of a directory, what is made in it: the owner, that user, the group, the mask, others.
var acl = []byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\xe8\x03\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff")

// TestAttributes checks that entries with attributes or ACLs, the volume's own directory too, are found by descriptor, and by path
// where the kernel knows no other way.
func TestAttributes(t *testing.T) {
	for _, link := range []string{"", "/proc/self/fd/%d/"} {
		dir, _, _ := list(t, "acl", "plain", "rich")
		require.NoError(t, unix.Setxattr(filepath.Join(dir, "rich"), "user.holdfast", []byte("x"), 0))
		require.NoError(t, unix.Setxattr(filepath.Join(dir, "acl"), "system.posix_acl_access", acl, 0))
		var found []string
		v, err := Open(dir, time.Now(), func(path string, rule outcome.Rule, _ error) { found = append(found, path+" "+string(rule)) })
		require.NoError(t, err)
		root, err := v.Root()
		require.NoError(t, err)
		iterator, err := root.Iterate(t.Context())
		require.NoError(t, err)
		listing := iterator.(*directoryListing)
		if link != "" {
			listing.attributes.link = fmt.Sprintf(link, listing.fd)
		}
		for range 4 {
			_, err := listing.Next(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, []string{"acl attributes", "rich attributes"}, found)
		require.NoError(t, unix.Setxattr(dir, "system.posix_acl_default", acl, 0))
		_, err = v.Root()
		require.NoError(t, err)
		require.Equal(t, ". attributes", found[2])
		listing.Close()
		require.NoError(t, v.Close())
	}
}

// TestDevice reads a file in the place of a block device.
func TestDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.WriteFile(path, []byte("blocks"), 0o600))
	_, err := Open(path, time.Now(), nil)
	require.ErrorContains(t, err, "neither a directory nor a block device")
	f, err := os.Open(path)
	require.NoError(t, err)
	v := &Volume{device: f, name: "device"}
	require.EqualValues(t, 6, v.Size(t.Context()))
	root, err := v.Root()
	require.NoError(t, err)
	e, err := root.Child(t.Context(), "device")
	require.NoError(t, err)
	for range 2 { // parts are read by readers of their own
		r, err := e.(kopiafs.File).Open(t.Context())
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "blocks", string(data))
		require.NoError(t, r.Close())
	}
	require.NoError(t, v.Close())
}
