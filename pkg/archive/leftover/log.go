package leftover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxLog bounds, in compressed bytes, the log that is extended: it is copied to Dir and back, and a
// bucket must not decide how much of a disk is taken.
const maxLog = 64 << 20

// log writes the lines of the log behind those that are there, as another member of the compressed
// file.
func (j *Job) log(ctx context.Context, o *Outcome) (err error) {
	if err := j.checkLog(ctx); err != nil {
		return err
	}
	file, err := os.CreateTemp(j.Dir, "log-")
	if err != nil {
		return fmt.Errorf("extend %s: %w", j.Log, err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	if err := j.copyLog(ctx, file); err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	var line []byte
	for i := range o.entries {
		line = joblog.AppendText(line[:0], &o.entries[i], j.Field, j.Value)
		if _, err := zip.Write(line); err != nil {
			return fmt.Errorf("extend %s: %w", j.Log, err)
		}
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("extend %s: %w", j.Log, err)
	}
	return j.store(ctx, j.Log, file)
}

// checkLog returns ErrLeft for a log that is listed as too large. It lists, since the Stat of a store
// behind a plugin reads the whole object.
func (j *Job) checkLog(ctx context.Context) error {
	var size int64
	err := j.Store.List(ctx, j.Log, func(i objectstore.Info) error {
		if i.Key == j.Log {
			size = i.Size
		}
		return fs.SkipAll // in byte order the key itself comes first
	})
	switch {
	case err != nil:
		return fmt.Errorf("look for %s: %w", j.Log, err)
	case size > maxLog:
		return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrLeft, j.Log, size, maxLog)
	}
	return nil
}

// copyLog copies the log, if there is one. Its size is checked once more: a store behind a plugin
// lists none.
func (j *Job) copyLog(ctx context.Context, file *os.File) error {
	body, err := j.Store.Get(ctx, j.Log)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", j.Log, err)
	}
	n, err := io.Copy(file, io.LimitReader(body, maxLog+1))
	closed := body.Close()
	switch {
	case err == nil && n > maxLog:
		return fmt.Errorf("%w: %s has more than %d bytes", ErrLeft, j.Log, maxLog)
	case err != nil || closed != nil:
		return fmt.Errorf("read %s: %w", j.Log, errors.Join(err, closed))
	}
	return nil
}
