package leftover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxResults bounds the results that are extended, as text and once they are decoded.
	maxResults     = 8 << 20
	decodedResults = 48 << 20
)

// ErrLeft means that a file of the job could not be extended, since it is damaged or too large, and
// stays as it is. Another attempt has the same end.
var ErrLeft = errors.New("a file of the job is left as it is")

// ErrLog means that the log of the job was not extended, for a reason that may pass. The other files
// are as after a success, or after ErrLeft.
var ErrLog = errors.New("the log of the job is not extended")

// Publish writes the results with what the outcome adds to them, the file of operations, and last the
// log, which may take longest. After an attempt that was interrupted the results get nothing twice.
// The error wraps ErrLeft where all other files were written, and ErrLog alone where the log is to be
// tried again.
func (j *Job) Publish(ctx context.Context, o *Outcome) error {
	if len(o.entries) == 0 && o.ended == "" {
		return nil
	}
	results := j.results(ctx, o)
	if results != nil && !errors.Is(results, ErrLeft) {
		return results
	}
	if o.ended != "" {
		if err := j.put(ctx, j.Operations, o.ended); err != nil {
			return err
		}
	}
	err := j.log(ctx, o)
	if err != nil && !errors.Is(err, ErrLeft) {
		return fmt.Errorf("%w: %w", ErrLog, err) // not ErrLeft, which is not tried again
	}
	return errors.Join(results, err)
}

// results adds the entries to the results.
func (j *Job) results(ctx context.Context, o *Outcome) error {
	var all joblog.Results
	text, err := j.unpacked(ctx, j.Results)
	if err == nil && text != nil {
		err = jsonlimit.Unmarshal(text, &all, decodedResults)
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrLeft, j.Results, err)
		}
	}
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, half := range []*joblog.Result{&all.Errors, &all.Warnings} {
		for _, list := range append([][]string{half.Velero, half.Cluster}, lists(half.Namespaces)...) {
			for _, message := range list {
				known[message] = true
			}
		}
	}
	for i := range o.entries {
		if message := j.Message(&o.entries[i]); !known[message] {
			all.Add(&o.entries[i], message)
		}
	}
	text, err = json.Marshal(&all)
	if err != nil {
		return fmt.Errorf("encode %s: %w", j.Results, err)
	}
	return j.pack(ctx, j.Results, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

func lists(m map[string][]string) [][]string {
	all := make([][]string, 0, len(m))
	for _, list := range m {
		all = append(all, list)
	}
	return all
}

// unpacked returns a small compressed text, nil where there is none.
func (j *Job) unpacked(ctx context.Context, key string) ([]byte, error) {
	packed, err := objectstore.ReadAll(ctx, j.Store, key, maxResults)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, nil
	case errors.Is(err, objectstore.ErrSize):
		return nil, fmt.Errorf("%w: %s: %w", ErrLeft, key, err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	text, err := inflate(packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLeft, key, err)
	}
	return text, nil
}

// pack stores what write writes, compressed.
func (j *Job) pack(ctx context.Context, key string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(j.Dir, "file-")
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	zip := gzip.NewWriter(file)
	if err := errors.Join(write(zip), zip.Close()); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return j.store(ctx, key, file)
}

// put stores a file of Dir.
func (j *Job) put(ctx context.Context, key, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return errors.Join(j.store(ctx, key, file), file.Close())
}

func (j *Job) store(ctx context.Context, key string, file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if err := j.Confirm(ctx); err != nil {
		return err
	}
	if err := j.Store.Put(ctx, key, file, size); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}
