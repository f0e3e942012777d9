package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

const (
	blockItems = 1000
	blockBytes = 1 << 20
	level      = 1 // what deflate finds beyond that is not worth the time of a commit
)

// Record is one object as a part's sidecar has it.
type Record struct {
	// Key as AppendKey makes it.
	Key []byte
	// UID and Path are for the index.
	UID, Path []byte
	// Entry as AppendEntry makes it.
	Entry []byte
	// Offset and Length of the gzip member in the tarball.
	Offset, Length int64
}

// Writer writes a manifest as a stream. Its memory grows by about a hundred bytes for every
// thousand items. It is not safe for concurrent use.
type Writer struct {
	out     counter
	zip     *gzip.Writer
	text    bytes.Buffer // of the block being filled
	dir     directory
	index   *extsort.Sorter
	block   block
	lastKey []byte
	kind    string
	space   string
	begun   bool
	line    []byte
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// NewWriter begins a manifest on w; dir is a work directory for sorting the index. Close or Abort
// ends it.
func NewWriter(w io.Writer, h Header, dir string) (*Writer, error) {
	m := &Writer{out: counter{w: w}, index: extsort.New(extsort.Config{Dir: dir})}
	var err error
	if m.zip, err = gzip.NewWriterLevel(&m.out, level); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	h.FormatVersion = FormatVersion
	m.dir.Header = h
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("manifest header: %w", err)
	}
	m.text.Write(head[:len(head)-1])
	m.text.WriteString(`,"kinds":{` + "\n")
	return m, m.flushBlock(nil)
}

// Add appends one object. Keys must come in ascending order (ErrOrder).
func (m *Writer) Add(r Record) error {
	if m.begun && bytes.Compare(r.Key, m.lastKey) <= 0 {
		return fmt.Errorf("%w: %q after %q", ErrOrder, r.Key, m.lastKey)
	}
	key, ok := ParseKey(r.Key)
	if !ok {
		return fmt.Errorf("%w: key %q", ErrCorrupt, r.Key)
	}
	m.lastKey = append(m.lastKey[:0], r.Key...)
	m.writeSeparator(key, r.Path)
	if m.block.Items == 0 {
		m.block = block{Kind: len(m.dir.Kinds) - 1, First: key.Namespace + "/" + key.Name}
	}
	m.line = appendItem(m.line[:0], r.Entry, r.Offset, r.Length)
	m.text.Write(m.line)
	m.block.Items++
	m.dir.Kinds[len(m.dir.Kinds)-1].Items++
	if len(r.UID) > 0 {
		if err := m.index.Add(r.UID, r.Path); err != nil {
			return fmt.Errorf("manifest index: %w", err)
		}
	}
	if m.block.Items >= blockItems || m.text.Len() >= blockBytes {
		return m.flushBlock(&m.dir.Blocks)
	}
	return nil
}

// writeSeparator writes what stands between two items. Each item is a line of its own, so that a block
// can be read without what came before it.
func (m *Writer) writeSeparator(key Key, path []byte) {
	switch {
	case !m.begun || key.Kind != m.kind:
		if m.begun {
			m.text.WriteString("\n]\n},\n")
		}
		m.dir.Kinds = append(m.dir.Kinds, kindEntry(key.Kind, path))
		m.openList(key, true)
	case key.Namespace != m.space:
		m.text.WriteString("\n],\n")
		m.openList(key, false)
	default:
		m.text.WriteString(",\n")
	}
	m.begun, m.kind, m.space = true, key.Kind, key.Namespace
}

func (m *Writer) openList(key Key, kind bool) {
	m.line = m.line[:0]
	if kind {
		m.line = append(rawjson.AppendQuoted(m.line, key.Kind), ":{\n"...)
	}
	m.line = append(rawjson.AppendQuoted(m.line, key.Namespace), ":[\n"...)
	m.text.Write(m.line)
}

func kindEntry(kind string, path []byte) KindInfo {
	_, rest, _ := strings.Cut(string(path), "/")
	resource, rest, _ := strings.Cut(rest, "/")
	return KindInfo{Kind: kind, Resource: resource, Preferred: strings.HasPrefix(rest, "namespaces/") || strings.HasPrefix(rest, "cluster/")}
}

// flushBlock writes the text as one gzip member and files it.
func (m *Writer) flushBlock(blocks *[]block) error {
	start := m.out.n
	m.zip.Reset(&m.out)
	if _, err := m.text.WriteTo(m.zip); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := m.zip.Close(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	m.text.Reset()
	if blocks != nil {
		m.block.Offset, m.block.Length = start, m.out.n-start
		*blocks = append(*blocks, m.block)
		m.block = block{}
	}
	return nil
}

// Close writes the index, the trailer and the directory. It does not close the underlying writer.
func (m *Writer) Close(t Trailer) error {
	if m.block.Items > 0 {
		if err := m.flushBlock(&m.dir.Blocks); err != nil {
			return err
		}
	}
	if m.begun {
		m.text.WriteString("\n]\n}\n")
	}
	m.text.WriteString(`},"index":{` + "\n")
	if err := m.writeIndex(); err != nil {
		return err
	}
	m.text.WriteString("\n}")
	if err := m.flushBlock(nil); err != nil {
		return err
	}
	return m.writeDirectory(t)
}

func (m *Writer) writeIndex() (err error) {
	sorted, err := m.index.Sort()
	if err != nil {
		return fmt.Errorf("manifest index: %w", err)
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	last, first := "", true
	for {
		uid, path, err := sorted.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("manifest index: %w", err)
		}
		if !first && string(uid) == last { // the same object in another version
			continue
		}
		if !first {
			m.text.WriteString(",\n")
		}
		last, first = string(uid), false
		if err := m.addIndex(last, string(path)); err != nil {
			return err
		}
	}
	if m.block.Items > 0 {
		return m.flushBlock(&m.dir.Index)
	}
	return nil
}

func (m *Writer) addIndex(uid, path string) error {
	if m.block.Items == 0 {
		m.block = block{First: uid}
	}
	m.line = append(rawjson.AppendQuoted(m.line[:0], uid), ':')
	m.line = rawjson.AppendQuoted(m.line, path)
	m.text.Write(m.line)
	if m.block.Items++; m.block.Items >= blockItems {
		return m.flushBlock(&m.dir.Index)
	}
	return nil
}

func (m *Writer) writeDirectory(t Trailer) error {
	if t.Cuts == nil {
		t.Cuts = []Cut{}
	}
	tail, err := json.Marshal(struct {
		Trailer
		Directory *directory `json:"directory"`
	}{t, &m.dir})
	if err != nil {
		return fmt.Errorf("manifest directory: %w", err)
	}
	tail[0] = ','
	m.text.Write(append(tail, '\n'))
	start := m.out.n
	if err := m.flushBlock(nil); err != nil {
		return err
	}
	if _, err := m.out.Write(appendFooter(nil, start, m.out.n-start)); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// Abort releases a Writer that is not closed.
func (m *Writer) Abort() { _ = m.index.Close() }
