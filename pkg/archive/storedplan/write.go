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
	"slices"
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
	return w.sorter.Add([]byte(r.Key()), slices.Concat([]byte(r.Action), noText, line))
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
	for value, err := range joinParts(stream) {
		if err != nil {
			return err
		}
		action, line, _ := bytes.Cut(value, noText)
		if len(action) == 0 {
			continue
		}
		w.counts[string(action)]++
		if _, err := packed.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write rows: %w", err)
		}
	}
	if err := errors.Join(packed.Close(), buffered.Flush()); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	w.size, err = w.file.Seek(0, io.SeekEnd)
	return err
}

// noText is between the action of a row and its line, so that a row of one part need not be decoded.
var noText = []byte{0}

// joinParts yields the values of sorted parts, those of one row as one.
func joinParts(parts extsort.Stream) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var last, pending []byte
		for {
			key, value, err := parts.Next()
			if err == nil && pending != nil && bytes.Equal(key, last) {
				if pending, err = joinValues(pending, value); err == nil {
					continue
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			if pending != nil && !yield(pending, nil) || err != nil {
				return
			}
			last, pending = append(last[:0], key...), append(pending[:0], value...)
		}
	}
}

func joinValues(a, b []byte) ([]byte, error) {
	var rows [2]Row
	for i, value := range [][]byte{a, b} {
		_, line, _ := bytes.Cut(value, noText)
		if err := json.Unmarshal(line, &rows[i]); err != nil {
			return nil, fmt.Errorf("decode a part of a row: %w", err)
		}
	}
	rows[0].addPart(&rows[1])
	line, err := json.Marshal(&rows[0])
	if err != nil {
		return nil, fmt.Errorf("encode the row of %s %s: %w", rows[0].Kind, rows[0].Name, err)
	}
	return slices.Concat([]byte(rows[0].Action), noText, line), nil
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
