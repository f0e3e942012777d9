package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Backups hold Secrets: only owner and group, which processes may share, may read them; the umask
// takes away more.
const (
	dirMode  = 0o770
	fileMode = 0o660
)

// publishTries bounds the race with deletes that remove a directory just emptied.
const publishTries = 64

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.writeObject(ctx, "put", key, s.root.Rename, func(f *os.File) error { return copyExact(ctx, f, r, size) })
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	// Losing early spares the copy; the link below decides.
	if err := s.checkKey(ctx, key); err != nil {
		return err
	}
	if _, err := s.root.Lstat(key); err == nil {
		return s.existsError("create", key)
	}
	return s.writeObject(ctx, "create", key, s.root.Link, func(f *os.File) error { return copyExact(ctx, f, r, size) })
}

// Compose implements objectstore.Writer. Ranges are copied by the kernel where the file system can.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	err := s.writeObject(ctx, "compose", key, s.root.Link, func(f *os.File) error {
		for i, piece := range src {
			if err := s.appendSource(ctx, f, piece); err != nil {
				return fmt.Errorf("source %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		return objectstore.Info{}, err
	}
	return s.Stat(ctx, key)
}

// Delete implements objectstore.Writer. Directories left empty are removed.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.checkKey(ctx, key); err != nil {
		return err
	}
	fi, err := s.root.Lstat(key)
	if err == nil && fi.IsDir() {
		return nil
	}
	if err == nil {
		err = s.root.Remove(key)
	}
	if err != nil {
		if errors.Is(readError(err), objectstore.ErrNotFound) {
			return nil
		}
		return s.opError("delete", key, writeError(err))
	}
	return s.removeEmpty(parentDir(key))
}

// removeEmpty removes dir and its parents as long as they are empty, and makes the first one that
// stays durable.
func (s *Store) removeEmpty(dir string) error {
	for dir != "." && s.root.Remove(dir) == nil {
		dir = parentDir(dir)
	}
	s.temp.removeDir() // so that a bucket whose last object goes is empty
	if err := s.tree.syncEntries(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.opError("delete", dir, writeError(err))
	}
	return nil
}

// writeObject fills a temporary file and gives it its name when it is durable.
func (s *Store) writeObject(ctx context.Context, op, key string, publish func(tmp, key string) error, fill func(*os.File) error) (err error) {
	if err := s.checkKey(ctx, key); err != nil {
		return err
	}
	f, tmp, err := s.temp.createTemp(key)
	if err != nil {
		return s.opError(op, key, writeError(err))
	}
	defer func() {
		_ = f.Close() // after Sync, or the object is not published
		if rerr := s.root.Remove(tmp); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = s.opError(op, key, rerr)
		}
	}()
	if err := fill(f); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, writeError(err))
	}
	if err := f.Sync(); err != nil {
		return s.opError(op, key, writeError(err))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.publishFile(op, tmp, key, publish)
}

// publishFile makes the parents and the name, again if a delete removed the emptied parent in between.
func (s *Store) publishFile(op, tmp, key string, name func(tmp, key string) error) error {
	var err error
	for range publishTries {
		if err = s.tree.makeDirectories(parentDir(key)); err == nil {
			err = name(tmp, key)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		err = s.tree.syncEntries(parentDir(key))
	}
	if errors.Is(err, fs.ErrExist) {
		return s.existsError(op, key)
	}
	if err != nil {
		return s.opError(op, key, writeError(err))
	}
	return nil
}

// existsError is the error of an object, or of a directory, in the way.
func (s *Store) existsError(op, key string) error {
	if fi, err := s.root.Lstat(key); err == nil && fi.IsDir() {
		return fmt.Errorf("%s %s: %w: other objects lie under this name", op, key, objectstore.ErrInvalidKey)
	}
	return fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
}
