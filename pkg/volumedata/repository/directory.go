package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/kopia/kopia/snapshot"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// directoryStream is the type of a directory's content.
const directoryStream = "kopia:directory"

// directoryLimits bound the content of one directory, in bytes.
var directoryLimits = jsonlimit.Limits{Text: 64 << 30, Element: 1 << 20, Decoded: 4 << 20}

// EachEntry calls fn for each entry of a directory while it is read, so that memory does not grow with the
// directory. Names are as they were stored: that of a block device is a path. An error of fn ends the reading and is
// returned.
func (r *Repository) EachEntry(ctx context.Context, dir *snapshot.DirEntry, fn func(*snapshot.DirEntry) error) error {
	content, err := r.OpenObject(ctx, dir.ObjectID)
	if err != nil {
		return ReadError(ctx, err)
	}
	defer func() { _ = content.Close() }()
	var stopped error // by an entry
	err = jsonlimit.EachIn(content, "entries", directoryLimits, checkStream, func(e *snapshot.DirEntry) error {
		stopped = fn(e)
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return ReadError(ctx, err)
}

// FindPath follows a path from the root, and returns the entries on it: the root first, that of the path last. It
// follows no symbolic links. An entry that is not there is errgrpc.ErrNotFound.
func (r *Repository) FindPath(ctx context.Context, root *snapshot.DirEntry, name string) ([]*snapshot.DirEntry, error) {
	entries := []*snapshot.DirEntry{root}
	for at, rest := root, cleanPath(name); rest != ""; {
		var found *snapshot.DirEntry
		part, below, _ := strings.Cut(rest, "/")
		if at.Type == snapshot.EntryTypeDirectory {
			err := r.EachEntry(ctx, at, func(e *snapshot.DirEntry) error {
				switch {
				case e.Name == part:
				case at == root && cleanPath(e.Name) == rest: // a block device, whose name is a path
					below = ""
				default:
					return nil
				}
				found = e
				return errFound
			})
			if err != nil && !errors.Is(err, errFound) {
				return nil, err
			}
		}
		if found == nil {
			return nil, fmt.Errorf("%q in the volume: %w", name, errgrpc.ErrNotFound)
		}
		entries, at, rest = append(entries, found), found, below
	}
	return entries, nil
}

// cleanPath is empty for the volume itself.
func cleanPath(name string) string { return strings.Trim(path.Clean("/"+name), "/") }

// checkStream refuses content that is not a directory's.
func checkStream(key string, value json.RawMessage) error {
	if key == "stream" && string(value) != `"`+directoryStream+`"` {
		return fmt.Errorf("the content is %s", value)
	}
	return nil
}
