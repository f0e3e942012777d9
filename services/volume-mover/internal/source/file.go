package source

import (
	"context"
	"fmt"
	"io"
	"os"

	kopiafs "github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/fs/virtualfs"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// volumeFile is a regular file.
type volumeFile struct{ volumeEntry }

// Open implements kopia's fs.File.
func (f *volumeFile) Open(context.Context) (kopiafs.Reader, error) {
	open, err := f.openListed(0)
	if err != nil {
		return nil, err
	}
	return &entryReader{File: open, entry: f, node: &f.volumeEntry}, nil
}

// entryReader reads a file or a device. Its errors are *outcome.EntryError.
type entryReader struct {
	*os.File
	entry kopiafs.Entry
	node  *volumeEntry // nil for a device
}

// Read implements io.Reader.
func (r *entryReader) Read(p []byte) (int, error) {
	n, err := r.File.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // os.File returns io.EOF as it is
		err = readError(err)
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *entryReader) Seek(offset int64, whence int) (int64, error) {
	n, err := r.File.Seek(offset, whence)
	if err != nil {
		err = readError(err)
	}
	return n, err
}

// Entry implements kopia's fs.Reader.
func (r *entryReader) Entry() (kopiafs.Entry, error) { return r.entry, nil }

// Close ends reading, and records a file that is not what was listed.
func (r *entryReader) Close() error {
	if n := r.node; n != nil && n.volume.record != nil {
		info, err := r.Stat()
		if err != nil || info.Size() != n.size || !info.ModTime().Equal(n.mtime) || info.Sys().(*unixStat).Ino != n.inode {
			n.volume.record(n.path, outcome.Changed, err)
		}
	}
	return r.File.Close()
}

// deviceFile is a block device as a file. Its time is that of its reading, so that it is never taken
// from an earlier snapshot unread.
type deviceFile struct {
	volumeEntry
	f *os.File
}

// Open implements kopia's fs.File.
func (d *deviceFile) Open(context.Context) (kopiafs.Reader, error) {
	f, err := os.Open(d.f.Name())
	if err != nil {
		return nil, readError(err)
	}
	return &entryReader{File: f, entry: d}, nil
}

// deviceRoot is a directory of the device alone.
func (v *Volume) deviceRoot() (kopiafs.Directory, error) {
	size, err := v.device.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("size of the device: %w", err)
	}
	return virtualfs.NewStaticDirectory(v.name, []kopiafs.Entry{&deviceFile{volumeEntry{name: v.name, mode: 0o600, size: size, mtime: v.opened}, v.device}}), nil
}
