// Package source reads a volume for an upload: the directory of a file system, or a block device.
//
// A directory is read through os.Root and by file descriptors, without following symbolic links: what a
// Pod does to its volume meanwhile cannot make the mover read anything outside of it. Every name is
// stored; files that mean something to kopia (.kopiaignore, CACHEDIR.TAG, *.kopia-entry) mean nothing here.
package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
	"unicode/utf8"

	kopiafs "github.com/kopia/kopia/fs"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// Volume is a volume that is open for reading.
type Volume struct {
	root   *os.Root
	name   string
	record func(path string, rule outcome.Rule, err error) // nil records nothing
	device *os.File
	opened time.Time
}

// Open opens the directory or block device at path. record gets the entries of a directory that are
// stored, but not as they are, when they are listed; other entries end in an *outcome.EntryError. record
// is called concurrently. now becomes the time of a device.
func Open(path string, now time.Time, record func(path string, rule outcome.Rule, err error)) (*Volume, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	v := &Volume{name: filepath.Base(path), record: record, opened: now}
	switch {
	case info.IsDir():
		v.root, err = os.OpenRoot(path)
	case info.Mode()&fs.ModeType == fs.ModeDevice:
		v.device, err = os.Open(path)
	default:
		return nil, fmt.Errorf("%s is neither a directory nor a block device", path)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Close ends reading.
func (v *Volume) Close() error {
	if v.device != nil {
		return v.device.Close()
	}
	return v.root.Close()
}

// Root returns the volume as a directory. That of a device has one file, which is the device.
func (v *Volume) Root() (kopiafs.Directory, error) {
	if v.device != nil {
		return v.deviceRoot()
	}
	dir, err := v.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	if finder := NewAttributeFinder(dir); v.record != nil && finder.HasAttributes(".") {
		v.record(".", outcome.Attributes, nil)
	}
	st, ok := info.Sys().(*unixStat)
	if !ok {
		return nil, errors.New("the platform has no owners of files")
	}
	return &volumeDirectory{volumeEntry{volume: v, path: ".", name: v.name, mode: info.Mode(), mtime: info.ModTime(), uid: st.Uid, gid: st.Gid, inode: st.Ino}}, nil
}

// Size adds up the lengths of all files, and records nothing. It leaves out what cannot be read.
func (v *Volume) Size(ctx context.Context) int64 {
	quiet := *v
	quiet.record = nil
	root, err := quiet.Root()
	if err != nil {
		return 0
	}
	return directorySize(ctx, root)
}

func directorySize(ctx context.Context, d kopiafs.Directory) (total int64) {
	_ = kopiafs.IterateEntries(ctx, d, func(ctx context.Context, e kopiafs.Entry) error {
		switch e := e.(type) {
		case kopiafs.Directory:
			total += directorySize(ctx, e)
		case kopiafs.File:
			total += e.Size()
		}
		return ctx.Err()
	})
	return total
}

// volumeEntry is an entry of the volume as its directory was listed.
type volumeEntry struct {
	volume   *Volume
	path     string // relative to the volume
	name     string
	mode     fs.FileMode
	size     int64
	mtime    time.Time
	uid, gid uint32
	inode    uint64
}

// Name implements fs.FileInfo.
func (n *volumeEntry) Name() string { return n.name }

// Size implements fs.FileInfo.
func (n *volumeEntry) Size() int64 { return n.size }

// Mode implements fs.FileInfo.
func (n *volumeEntry) Mode() fs.FileMode { return n.mode }

// ModTime implements fs.FileInfo.
func (n *volumeEntry) ModTime() time.Time { return n.mtime }

// IsDir implements fs.FileInfo.
func (n *volumeEntry) IsDir() bool { return n.mode.IsDir() }

// Sys implements fs.FileInfo.
func (n *volumeEntry) Sys() any { return nil }

// Owner implements kopia's fs.Entry.
func (n *volumeEntry) Owner() kopiafs.OwnerInfo {
	return kopiafs.OwnerInfo{UserID: n.uid, GroupID: n.gid}
}

// Device implements kopia's fs.Entry.
func (n *volumeEntry) Device() kopiafs.DeviceInfo { return kopiafs.DeviceInfo{} }

// LocalFilesystemPath implements kopia's fs.Entry; it is empty, so that kopia opens nothing by itself.
func (n *volumeEntry) LocalFilesystemPath() string { return "" }

// Close implements kopia's fs.Entry.
func (n *volumeEntry) Close() {}

// failedEntry is an entry that is not stored.
type failedEntry struct {
	volumeEntry
	err error
}

// ErrorInfo implements kopia's fs.ErrorEntry.
func (f *failedEntry) ErrorInfo() error { return f.err }

// newEntry makes the entry called name of the directory.
func (l *directoryListing) newEntry(name string) kopiafs.Entry {
	n := volumeEntry{volume: l.dir.volume, path: path.Join(l.dir.path, name), name: name}
	if !utf8.ValidString(name) {
		return &failedEntry{n, &outcome.EntryError{Rule: outcome.Name, Err: fmt.Errorf("%q is not UTF-8", name)}}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(l.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &failedEntry{n, readError(err)}
	}
	n.mode, n.mtime, n.uid, n.gid, n.inode = fileMode(st.Mode), time.Unix(st.Mtim.Unix()), st.Uid, st.Gid, st.Ino
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		l.noteAttributes(&n)
		return &volumeDirectory{n}
	case unix.S_IFLNK:
		n.size = st.Size
		return &volumeLink{n}
	case unix.S_IFREG:
		n.size = st.Size
		l.noteFile(&n, &st)
		return &volumeFile{n}
	case unix.S_IFSOCK:
		return newUnstored(n, outcome.Socket)
	case unix.S_IFIFO:
		return newUnstored(n, outcome.FIFO)
	}
	return newUnstored(n, outcome.Device)
}

func newUnstored(n volumeEntry, rule outcome.Rule) kopiafs.Entry {
	return &failedEntry{n, &outcome.EntryError{Rule: rule, Err: errors.New("entries of this type are not stored")}}
}

// noteFile records what of a file is not stored as it is.
func (l *directoryListing) noteFile(n *volumeEntry, st *unix.Stat_t) {
	if n.volume.record == nil {
		return
	}
	if st.Nlink > 1 {
		n.volume.record(n.path, outcome.HardLink, nil)
	}
	if st.Blocks*512 < st.Size && int(st.Size) > int(st.Blksize) { // Blksize has 32 bits on arm64
		n.volume.record(n.path, outcome.Sparse, nil)
	}
	l.noteAttributes(n)
}

// readError is the error of reading an entry, as the rules have it.
func readError(err error) error {
	rule := outcome.Unreadable
	if errors.Is(err, fs.ErrNotExist) {
		rule = outcome.Vanished
	}
	return &outcome.EntryError{Rule: rule, Err: err}
}
