package repository

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kopia/kopia/snapshot"

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

// checkStream refuses content that is not a directory's.
func checkStream(key string, value json.RawMessage) error {
	if key == "stream" && string(value) != `"`+directoryStream+`"` {
		return fmt.Errorf("the content is %s", value)
	}
	return nil
}
