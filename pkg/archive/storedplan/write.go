package storedplan

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Writer collects the rows of a plan, in any order and in parts. Add is safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	dir    string
	sorter *extsort.Sorter
	counts map[string]int64
	file   *os.File
	size   int64
}

// NewWriter returns a writer that keeps what does not fit into its memory in files of dir.
func NewWriter(dir string) *Writer {
	return &Writer{dir: dir, sorter: extsort.New(extsort.Config{Dir: dir}), counts: map[string]int64{}}
}

// Add adds a row, or a part of one: the parts of a row, which have one key, are joined as they come, and the last action
// counts. A row of which no part has an action is left out. Texts that are longer or more than a row may hold are cut.
func (w *Writer) Add(r Row) error {
	r.Reasons, r.Fields, r.Unknown = boundTexts(r.Reasons), boundTexts(r.Fields), boundTexts(r.Unknown)
	line, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("encode the row of %s %s: %w", r.Kind, r.Name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sorter.Add([]byte(r.Key()), line)
}

// Sort ends the rows, joins their parts and sorts them.
func (w *Writer) Sort() (err error) {
	stream, err := w.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if w.file, err = os.CreateTemp(w.dir, "plan-*"); err != nil {
		return fmt.Errorf("create the file of rows: %w", err)
	}
	if err := os.Remove(w.file.Name()); err != nil {
		return fmt.Errorf("unlink the file of rows: %w", err)
	}
	buffered := bufio.NewWriterSize(w.file, 64<<10)
	packed := gzip.NewWriter(buffered)
	encoder := json.NewEncoder(packed)
	for row, err := range joinParts(stream) {
		if err == nil && row.Action != "" {
			w.counts[row.Action]++
			err = encoder.Encode(row)
		}
		if err != nil {
			return fmt.Errorf("write rows: %w", err)
		}
	}
	if err := errors.Join(packed.Close(), buffered.Flush()); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	w.size, err = w.file.Seek(0, io.SeekEnd)
	return err
}

// joinParts yields the rows of sorted parts.
func joinParts(parts extsort.Stream) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		var row *Row
		for {
			_, line, err := parts.Next()
			var part *Row
			if err == nil {
				part = &Row{}
				err = json.Unmarshal(line, part)
			}
			switch {
			case err != nil && !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			case row != nil && part != nil && part.Key() == row.Key():
				row.addPart(part)
				continue
			case row != nil && !yield(row, nil) || part == nil:
				return
			}
			row = part
		}
	}
}

func (r *Row) addPart(part *Row) {
	if part.Action != "" {
		r.Action, r.Order = part.Action, part.Order
	}
	r.TargetNamespace = cmp.Or(r.TargetNamespace, part.TargetNamespace)
	r.Reasons = boundTexts(append(r.Reasons, part.Reasons...))
	r.Fields, r.Unknown = boundTexts(append(r.Fields, part.Fields...)), boundTexts(append(r.Unknown, part.Unknown...))
}

// Counts returns the numbers of rows by action, after Sort.
func (w *Writer) Counts() map[string]int64 { return w.counts }

// Rows returns the rows in their order, after Sort.
func (w *Writer) Rows() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		decodeRows(io.NewSectionReader(w.file, 0, w.size), yield)
	}
}

// Store writes the plan, after Sort: the rows, then the header, whose format version and counts it
// sets. A plan that exists is objectstore.ErrExists.
func (w *Writer) Store(ctx context.Context, store objectstore.Writer, h *Header) error {
	if err := layout.CheckName(h.ID); err != nil {
		return fmt.Errorf("id of a plan: %w", err)
	}
	h.FormatVersion, h.Counts = FormatVersion, w.counts
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode the header of plan %s: %w", h.ID, err)
	}
	if len(text) > maxHeader {
		return fmt.Errorf("header of plan %s: %d bytes, at most %d are allowed", h.ID, len(text), maxHeader)
	}
	if err := store.Create(ctx, layout.PlanRows(h.ID), io.NewSectionReader(w.file, 0, w.size), w.size); err != nil {
		return fmt.Errorf("store the rows of plan %s: %w", h.ID, err)
	}
	if err := store.Create(ctx, layout.PlanHeader(h.ID), bytes.NewReader(text), int64(len(text))); err != nil {
		return fmt.Errorf("store plan %s: %w", h.ID, err)
	}
	return nil
}

// Close releases the files of the writer.
func (w *Writer) Close() error {
	err := w.sorter.Close()
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	return err
}
