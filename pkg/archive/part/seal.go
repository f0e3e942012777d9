package part

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/extsort"
)

// magic begins every sidecar, inside the gzip stream; the digit is the format's version.
const magic = "holdfast sidecar 1\n"

// Seal finishes the part. The Writer takes nothing more; after an error its files are removed.
func (w *Writer) Seal() (*Sealed, error) {
	if w.err != nil {
		return nil, w.err
	}
	if err := w.data.closeMember(); err != nil {
		return nil, w.discardFiles(err)
	}
	if w.cfg.IndexOnly {
		w.data.members = make([]memberPlace, 1)
	}
	sidecar, err := w.writeSidecar()
	if err != nil {
		return nil, w.discardFiles(err)
	}
	data, err := w.data.finishFile()
	if err == nil && data.Size == 0 {
		err = os.Remove(data.Path)
		data = File{}
	}
	if err != nil {
		return nil, errors.Join(w.discardFiles(err), os.Remove(sidecar.Path))
	}
	w.err = ErrSealed
	_ = w.entries.close() // it and notes were only read since they were flushed
	_ = w.notes.close()
	c := w.counts
	return &Sealed{Data: data, Sidecar: sidecar, Items: c.Items, Failed: c.Failed, Warnings: c.Warnings, Errors: c.Errors}, nil
}

func (w *Writer) discardFiles(err error) error {
	w.Discard()
	return fmt.Errorf("seal part: %w", err)
}

// writeSidecar writes the magic, the entries in order of keys, the log entries and the counts, each
// group ended by an empty record.
func (w *Writer) writeSidecar() (_ File, err error) {
	out, err := newStream(w.cfg.Dir, "sidecar-*", DefaultLevel)
	if err != nil {
		return File{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.discardFile())
		}
	}()
	if err := errors.Join(out.openMember(), out.write([]byte(magic))); err != nil {
		return File{}, err
	}
	if err := w.writeEntries(out); err != nil {
		return File{}, err
	}
	if err := w.writeNotes(out); err != nil {
		return File{}, err
	}
	counted, err := json.Marshal(w.counts)
	if err != nil {
		return File{}, err
	}
	if err := out.write(appendText(nil, counted)); err != nil {
		return File{}, err
	}
	return out.finishFile()
}

func (w *Writer) writeEntries(out *stream) error {
	in, err := w.entries.openReader()
	if err != nil {
		return err
	}
	var entries extsort.Stream = &spooled{texts{in: in, limit: maxRecord}}
	if w.order.broken {
		if entries, err = w.sortEntries(entries); err != nil {
			return err
		}
		defer func() { _ = entries.Close() }()
	}
	var record, body []byte
	for {
		key, value, err := entries.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return out.write([]byte{0, 0})
		}
		if err != nil {
			return err
		}
		var ok bool
		if body, ok = resolvePlace(body[:0], value, w.data.members); !ok {
			return fmt.Errorf("%w: entry %q", ErrCorrupt, key)
		}
		record = appendLengths(record[:0], len(key), len(body))
		record = append(append(record, key...), body...)
		if err := out.write(record); err != nil {
			return err
		}
	}
}

// maxRecord is above what metadata can be, with all the room a manifest entry takes.
const maxRecord = 64 << 20

func (w *Writer) sortEntries(entries extsort.Stream) (extsort.Stream, error) {
	sorter := extsort.New(extsort.Config{Dir: w.cfg.Dir, MemoryBytes: 1 << 20})
	for {
		key, value, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return sorter.Sort()
		}
		if err == nil {
			err = sorter.Add(key, value)
		}
		if err != nil {
			return nil, errors.Join(err, sorter.Close())
		}
	}
}

func (w *Writer) writeNotes(out *stream) error {
	in, err := w.notes.openReader()
	if err != nil {
		return err
	}
	notes := texts{in: in, limit: maxRecord}
	var record []byte
	for {
		note, err := notes.nextTexts(1)
		if errors.Is(err, io.EOF) {
			return out.write([]byte{0})
		}
		if err != nil {
			return err
		}
		record = appendText(record[:0], note[0])
		if err := out.write(record); err != nil {
			return err
		}
	}
}

// spooled yields the entries of a spool.
type spooled struct{ texts }

func (s *spooled) Next() (key, value []byte, err error) {
	pair, err := s.nextTexts(2)
	if err != nil {
		return nil, nil, err
	}
	return pair[0], pair[1], nil
}

func (s *spooled) Close() error { return nil }
