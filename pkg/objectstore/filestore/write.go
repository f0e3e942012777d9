package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Backups hold Secrets: nobody but owner and group, which processes may share, reads them; the
// umask takes away more.
const (
	dirMode  = 0o770
	fileMode = 0o660
)

// publishTries bounds the race with deletes that remove a directory just emptied.
const publishTries = 64

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.write(ctx, "put", key, s.replace, func(f *os.File) error { return copyExact(ctx, f, r, size) })
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	// Losing early spares the copy; the link below decides.
	if err := s.check(ctx, key); err != nil {
		return err
	}
	if _, err := s.root.Lstat(key); err == nil {
		return s.exists("create", key)
	}
	return s.write(ctx, "create", key, s.link, func(f *os.File) error { return copyExact(ctx, f, r, size) })
}

// Compose implements objectstore.Writer. Ranges are copied by the kernel where the file system can.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	err := s.write(ctx, "compose", key, s.link, func(f *os.File) error {
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
	if err := s.check(ctx, key); err != nil {
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
		return s.failed("delete", key, writeError(err))
	}
	return s.removeEmpty(parent(key))
}

// removeEmpty removes dir and its parents as long as they are empty, and makes the first one that
// stays durable.
func (s *Store) removeEmpty(dir string) error {
	for dir != "." && s.root.Remove(dir) == nil {
		dir = parent(dir)
	}
	_ = s.root.Remove(tempDir) // so that a bucket whose last object goes is empty; a writer makes it again
	if err := s.syncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.failed("delete", dir, writeError(err))
	}
	return nil
}

// write fills a temporary file and gives it its name when it is durable.
func (s *Store) write(ctx context.Context, op, key string, publish func(tmp, key string) error, fill func(*os.File) error) (err error) {
	if err := s.check(ctx, key); err != nil {
		return err
	}
	f, tmp, err := s.createTemp(key)
	if err != nil {
		return s.failed(op, key, writeError(err))
	}
	defer func() {
		_ = f.Close()
		if rerr := s.root.Remove(tmp); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = s.failed(op, key, rerr)
		}
	}()
	if err := fill(f); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, writeError(err))
	}
	if err := f.Sync(); err != nil {
		return s.failed(op, key, writeError(err))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.publish(op, tmp, key, publish)
}

// publish makes the parents and the name, again if a delete removed the emptied parent in between.
func (s *Store) publish(op, tmp, key string, name func(tmp, key string) error) error {
	var err error
	for range publishTries {
		if err = s.makeDirs(parent(key)); err == nil {
			err = name(tmp, key)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		err = s.syncDir(parent(key))
	}
	if errors.Is(err, fs.ErrExist) {
		return s.exists(op, key)
	}
	if err != nil {
		return s.failed(op, key, writeError(err))
	}
	return nil
}

func (s *Store) link(tmp, key string) error { return s.root.Link(tmp, key) }

func (s *Store) replace(tmp, key string) error { return s.root.Rename(tmp, key) }

// exists tells an object in the way from a directory in the way.
func (s *Store) exists(op, key string) error {
	if fi, err := s.root.Lstat(key); err == nil && fi.IsDir() {
		return fmt.Errorf("%s %s: %w: other objects lie under this name", op, key, objectstore.ErrInvalidKey)
	}
	return fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
}

// makeDirs creates dir and its parents; each new entry is made durable, or the object could vanish
// with its directory.
func (s *Store) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := s.root.Lstat(dir); err == nil {
		return nil
	}
	done := ""
	for seg := range strings.SplitSeq(dir, "/") {
		up := done
		done = path.Join(done, seg)
		err := s.root.Mkdir(done, dirMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.syncDir(path.Join(".", up)); err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes the entries of a directory durable.
func (s *Store) syncDir(dir string) error { return s.syncs.do(dir) }

func (s *Store) syncNow(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// createTemp opens a new file for what will become key.
func (s *Store) createTemp(key string) (*os.File, string, error) {
	tmp := path.Join(tempDir, tempName(key))
	for range publishTries {
		if err := s.root.Mkdir(tempDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
		f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, tmp, err
		}
	}
	return nil, "", fs.ErrNotExist
}
