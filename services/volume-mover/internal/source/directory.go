package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	kopiafs "github.com/kopia/kopia/fs"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// unixStat is what os.FileInfo has on unix.
type unixStat = syscall.Stat_t

// listBatch is how many names are read and sorted at once. In order, files of a volume lie in the repository as a
// restore reads them.
const listBatch = 4096

// errReplaced means that an entry is not the one that was listed.
var errReplaced = errors.New("another entry has taken the name meanwhile")

// volumeDirectory is a directory of the volume.
type volumeDirectory struct{ volumeEntry }

// Size implements fs.FileInfo: kopia gives directories none.
func (d *volumeDirectory) Size() int64 { return 0 }

// SupportsMultipleIterations implements kopia's fs.Directory.
func (d *volumeDirectory) SupportsMultipleIterations() bool { return true }

// Child implements kopia's fs.Directory.
func (d *volumeDirectory) Child(ctx context.Context, name string) (kopiafs.Entry, error) {
	return kopiafs.IterateEntriesAndFindChild(ctx, d, name)
}

// Iterate implements kopia's fs.Directory.
func (d *volumeDirectory) Iterate(context.Context) (kopiafs.DirectoryIterator, error) {
	f, err := d.openListed(unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &directoryListing{dir: d, f: f, fd: int(f.Fd()), attributes: NewAttributeFinder(f)}, nil
}

// openListed opens the entry, if it still is the one that was listed.
func (n *volumeEntry) openListed(flags int) (*os.File, error) {
	f, err := n.volume.root.OpenFile(n.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0)
	for range 2 { // a stale handle of NFS is gone when the name is looked up again
		if !errors.Is(err, unix.ESTALE) {
			break
		}
		f, err = n.volume.root.OpenFile(n.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0)
	}
	if err != nil {
		return nil, readError(err)
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Type() != n.mode.Type() || (info.IsDir() && info.Sys().(*unixStat).Ino != n.inode) {
		_ = f.Close()
		if err == nil {
			err = errReplaced
		}
		return nil, readError(err)
	}
	return f, nil
}

// directoryListing reads a directory.
type directoryListing struct {
	dir        *volumeDirectory
	f          *os.File
	fd         int
	names      []string
	attributes AttributeFinder
}

// Next implements kopia's fs.DirectoryIterator.
func (l *directoryListing) Next(context.Context) (kopiafs.Entry, error) {
	if len(l.names) == 0 {
		names, err := l.f.Readdirnames(listBatch)
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, readError(err)
		}
		slices.Sort(names)
		l.names = names
	}
	name := l.names[0]
	l.names = l.names[1:]
	return l.newEntry(name), nil
}

// Close implements kopia's fs.DirectoryIterator.
func (l *directoryListing) Close() { _ = l.f.Close() }

// noteAttributes records an entry with extended attributes.
func (l *directoryListing) noteAttributes(n *volumeEntry) {
	if n.volume.record != nil && l.attributes.HasAttributes(n.name) {
		n.volume.record(n.path, outcome.Attributes, nil)
	}
}

// volumeLink is a symbolic link.
type volumeLink struct{ volumeEntry }

// Readlink implements kopia's fs.Symlink.
func (s *volumeLink) Readlink(context.Context) (string, error) {
	target, err := s.volume.root.Readlink(s.path)
	if err != nil {
		return "", readError(err)
	}
	return target, nil
}

// Resolve implements kopia's fs.Symlink; links are not followed.
func (s *volumeLink) Resolve(context.Context) (kopiafs.Entry, error) {
	return nil, errors.New("symbolic links are not followed")
}

// fileMode turns the mode of stat(2) into Go's.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	}
	for _, b := range [...]struct {
		bit  uint32
		flag fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if mode&b.bit != 0 {
			m |= b.flag
		}
	}
	return m
}
