package filestore

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// List implements objectstore.Reader. Memory is bounded by the names of the directories on one
// path.
func (s *Store) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return err
	}
	dir := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i+1]
	}
	err := s.walkDir(ctx, dir, prefix, fn)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// ListPrefixes implements objectstore.Reader. Directories without an object in them do not count.
func (s *Store) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	if err := objectstore.CheckDir(prefix); err != nil {
		return nil, err
	}
	entries, err := s.readDir(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		found := false
		err := s.walkDir(ctx, prefix+e.Name()+"/", "", func(objectstore.Info) error {
			found = true
			return fs.SkipAll
		})
		if err != nil && !errors.Is(err, fs.SkipAll) {
			return nil, err
		}
		if found {
			dirs = append(dirs, e.Name()+"/")
		}
	}
	return dirs, nil
}

// walkDir visits the objects under dir ("" or ending in "/") whose key starts with prefix, in key
// order.
func (s *Store) walkDir(ctx context.Context, dir, prefix string, fn func(objectstore.Info) error) error {
	entries, err := s.readDir(ctx, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		key := sortKey(dir, e)
		if !strings.HasPrefix(key, prefix) && !(e.IsDir() && strings.HasPrefix(prefix, key)) {
			continue
		}
		if e.IsDir() {
			err = s.walkDir(ctx, key, prefix, fn)
		} else {
			err = s.visitEntry(ctx, key, e, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) visitEntry(ctx context.Context, key string, e fs.DirEntry, fn func(objectstore.Info) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fi, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since the directory was read
	}
	if err != nil {
		return s.opError("list", key, readError(err))
	}
	return fn(objectInfo(key, fi))
}

// readDir returns files and directories in key order: a directory sorts as its name with a slash,
// as its keys do.
func (s *Store) readDir(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := path.Join(".", dir)
	d, err := s.root.Open(name)
	if err == nil {
		defer func() { _ = d.Close() }()
		var entries []fs.DirEntry
		if entries, err = d.ReadDir(-1); err == nil {
			return orderEntries(dir, entries), nil
		}
	}
	err = s.opError("list", name, readError(err))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	return nil, err
}

func orderEntries(dir string, entries []fs.DirEntry) []fs.DirEntry {
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return (dir == "" && e.Name() == tempDir) || !(e.IsDir() || e.Type().IsRegular())
	})
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortKey("", a), sortKey("", b)) })
	return entries
}

func sortKey(dir string, e fs.DirEntry) string {
	if e.IsDir() {
		return dir + e.Name() + "/"
	}
	return dir + e.Name()
}
