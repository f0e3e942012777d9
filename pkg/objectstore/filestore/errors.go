package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// opError names the operation and key, and finds out whether a "not found" is the whole bucket's.
func (s *Store) opError(op, key string, err error) error {
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(s.dir); errors.Is(serr, fs.ErrNotExist) {
			err = fmt.Errorf("%w: directory %s", objectstore.ErrNoBucket, s.dir)
		}
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

// readError translates an error of the file system on reading.
func readError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return objectstore.ErrNotFound
	case errors.Is(err, syscall.ENAMETOOLONG):
		// No object of such a name can have been written.
		return objectstore.ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objectstore.ErrAccess, err)
	}
	return err
}

// writeError translates an error of the file system on writing.
func writeError(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", objectstore.ErrReadOnly, err)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: a path segment is longer than the file system allows", objectstore.ErrInvalidKey)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: the path runs through another object", objectstore.ErrInvalidKey)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY):
		return fmt.Errorf("%w: other objects lie under this name", objectstore.ErrInvalidKey)
	}
	return err
}

func cutFirst(key string) (first, rest string, found bool) { return strings.Cut(key, "/") }
