package part

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Writer writes one part. It is not safe for concurrent use.
type Writer struct {
	cfg     Config
	data    *stream
	entries *spool
	notes   *spool
	order   entryOrder
	counts  partCounts
	err     error // what broke the writer

	sum     hash.Hash
	content *manifest.ContentHasher
	compact []byte         // scratch: an item without white space
	front   []byte         // scratch: apiVersion and kind
	path    []byte         // scratch
	block   []byte         // scratch: tar header, and body of a small item
	record  []byte         // scratch: sidecar record
	key     []byte         // scratch
	pieces  [][]byte       // scratch
	entry   manifest.Entry // scratch
}

// Mark is a place in a part to come back to.
type Mark struct {
	w              *Writer
	data           streamMark
	entries, notes int64
	order          entryOrder
	counts         partCounts
}

// partCounts is what a part adds up to.
type partCounts struct{ Items, Failed, Warnings, Errors int }

// entryOrder reports whether entries came sorted, as they do from a list.
type entryOrder struct {
	last   string
	broken bool
}

// NewWriter creates the part's files in cfg.Dir. Seal or Discard ends it.
func NewWriter(cfg Config) (*Writer, error) {
	if cfg.MemberBytes <= 0 {
		cfg.MemberBytes = DefaultMemberBytes
	}
	if cfg.Level == 0 {
		cfg.Level = DefaultLevel
	}
	data, err := newStream(cfg.Dir, "part-*", cfg.Level)
	if err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, data: data, sum: sha256.New(), content: manifest.NewContentHasher()}
	if w.entries, err = newSpool(cfg.Dir); err == nil {
		w.notes, err = newSpool(cfg.Dir)
	}
	if err != nil {
		w.Discard()
		return nil, err
	}
	return w, nil
}

// Items returns the number of objects stored.
func (w *Writer) Items() int { return w.counts.Items }

// Failed returns the number of objects recorded by Fail.
func (w *Writer) Failed() int { return w.counts.Failed }

// Size returns about how many compressed bytes the part has: what the compressor still holds is
// missing, less than 100 KiB.
func (w *Writer) Size() int64 { return w.data.n }

// Note keeps a log entry in the sidecar.
func (w *Writer) Note(e joblog.Entry) error {
	if w.err != nil {
		return w.err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("log entry: %w", err)
	}
	if err := w.notes.addText(text); err != nil {
		return w.keepError(err)
	}
	switch e.Level {
	case joblog.Warning:
		w.counts.Warnings++
	case joblog.Error:
		w.counts.Errors++
	}
	return nil
}

// keepError keeps an error of the work dir: what was being written is in an unknown state.
func (w *Writer) keepError(err error) error {
	w.err = fmt.Errorf("write part: %w", err)
	return w.err
}

// Mark returns the present end. It costs a few bytes of the part, since the compressor is flushed.
func (w *Writer) Mark() (Mark, error) {
	if w.err != nil {
		return Mark{}, w.err
	}
	data, err := w.data.markPosition()
	err = errors.Join(err, w.entries.flushBuffer(), w.notes.flushBuffer())
	if err != nil {
		return Mark{}, w.keepError(err)
	}
	return Mark{w: w, data: data, entries: w.entries.n, notes: w.notes.n, order: w.order, counts: w.counts}, nil
}

// Rewind cuts everything after m: objects, log entries and counts. Marks taken before m stay valid,
// later ones do not. It also recovers from an error of the work dir.
func (w *Writer) Rewind(m Mark) error {
	if errors.Is(w.err, ErrSealed) {
		return w.err
	}
	if m.w != w || m.data.n > w.data.n || m.entries > w.entries.n || m.notes > w.notes.n || m.data.members > len(w.data.members) {
		return ErrMark
	}
	if err := errors.Join(w.data.rewindTo(m.data), w.entries.rewindTo(m.entries), w.notes.rewindTo(m.notes)); err != nil {
		return w.keepError(err)
	}
	w.order, w.counts, w.err = m.order, m.counts, nil
	return nil
}

// Discard removes the files of a part that was not sealed. It may be called at any time and more
// than once.
func (w *Writer) Discard() {
	if errors.Is(w.err, ErrSealed) {
		return
	}
	w.err = ErrSealed
	// Nothing can be done about a temporary file that does not go away.
	_ = w.data.discardFile()
	_ = w.entries.close()
	_ = w.notes.close()
}

// keepRecord appends the sidecar record of an object.
func (w *Writer) keepRecord(kind, namespace, name string, body []byte) error {
	w.key = manifest.AppendKey(w.key[:0], kind, namespace, name)
	if !w.order.broken {
		w.order.broken = string(w.key) < w.order.last
		w.order.last = string(w.key)
	}
	return w.entries.addPair(w.key, body)
}
