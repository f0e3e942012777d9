// Package filestore keeps objects as files of one directory, for a single machine or a shared file
// system with working link(2).
//
// An object is written to a temporary file, synced, and then linked (create-if-absent) or renamed
// (replace) to its name, so that no reader ever gets a part of one, also after a power failure.
// Paths cannot leave the directory, not even over symbolic links (os.Root). One segment of a key is
// at most 255 bytes, and a key may not run through another object ("a" and "a/b").
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Store is a directory used as a bucket. Several processes may use one directory at once.
type Store struct {
	root *os.Root
	dir  string
	tree dirTree
	temp tempFiles
}

var _ objectstore.Store = (*Store)(nil)

// Open uses an existing directory; a missing one is ErrNoBucket. Nothing is written until the first
// object is, except that temporary files a crashed process left a day ago are removed.
func Open(dir string) (*Store, error) {
	fi, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !fi.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a directory", objectstore.ErrNoBucket, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open bucket directory: %w", readError(err))
	}
	s := &Store{root: root, dir: dir, temp: tempFiles{root: root}}
	s.tree.root = root
	s.tree.syncs = dirSyncs{sync: s.tree.syncDirectory, dirs: map[string]*dirSync{}}
	s.temp.sweepStale()
	return s, nil
}

// Close closes the directory; open readers stay usable.
func (s *Store) Close() error { return s.root.Close() }

// Get implements objectstore.Reader.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.GetRange(ctx, key, 0, -1)
}

// GetRange implements objectstore.Reader.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.checkKey(ctx, key); err != nil {
		return nil, err
	}
	if err := objectstore.CheckRange(key, off); err != nil {
		return nil, err
	}
	f, info, err := s.openObject(key)
	if err != nil {
		return nil, err
	}
	if left := max(info.Size()-off, 0); n < 0 || n > left {
		n = left
	}
	return &reader{ctx: ctx, SectionReader: io.NewSectionReader(f, off, n), file: f}, nil
}

// Stat implements objectstore.Reader.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if err := s.checkKey(ctx, key); err != nil {
		return objectstore.Info{}, err
	}
	fi, err := s.root.Stat(key)
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objectstore.Info{}, s.opError("stat", key, readError(err))
	}
	return objectInfo(key, fi), nil
}

// openObject returns a regular file and its size at this moment; objects are never changed in place.
func (s *Store) openObject(key string) (*os.File, fs.FileInfo, error) {
	f, err := s.root.OpenFile(key, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, s.opError("get", key, readError(err))
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, s.opError("get", key, readError(err))
	}
	return f, fi, nil
}

func (s *Store) checkKey(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	if first, _, _ := cutFirst(key); first == tempDir {
		return fmt.Errorf("%w: %q is reserved", objectstore.ErrInvalidKey, key)
	}
	return ctx.Err()
}

// reader reads one range and notices a cancelled context.
type reader struct {
	ctx context.Context
	*io.SectionReader
	file *os.File
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.SectionReader.Read(p)
}

func (r *reader) Close() error { return r.file.Close() }

func objectInfo(key string, fi fs.FileInfo) objectstore.Info {
	i := objectstore.Info{Key: key, Size: fi.Size(), ModTime: fi.ModTime()}
	var inode uint64
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	i.ETag = fmt.Sprintf("%x-%x-%x", fi.ModTime().UnixNano(), fi.Size(), inode)
	return i
}

func parentDir(key string) string { return path.Dir(key) }
