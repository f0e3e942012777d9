package jsonlist

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// byteSpan is a range of bytes relative to the scanner's keep.
type byteSpan struct{ from, to int }

// itemFields is what an item's own fields contain.
type itemFields struct {
	metadata   byteSpan
	envelope   Envelope
	apiVersion bool
	kind       bool
	cut        bool // one of the two is empty or no string
}

// scanItem scans the object at pos.
func (s *scanner) scanItem() (Item, error) {
	s.keep, s.spaced = s.pos, false
	if err := s.pushLevel(false); err != nil {
		return Item{}, err
	}
	s.pos++
	c, err := s.peekByte()
	if err != nil {
		return Item{}, err
	}
	var f itemFields
	for c != '}' {
		if err := s.itemField(&f); err != nil {
			return Item{}, err
		}
		if c, err = s.peekByte(); err != nil {
			return Item{}, err
		}
		switch c {
		case ',':
			s.pos++
		case '}':
		default:
			return Item{}, s.unexpectedError(c, "a comma or closing brace")
		}
	}
	s.pos++
	s.depth--
	return s.foundItem(f)
}

func (s *scanner) itemField(f *itemFields) error {
	if _, err := s.peekByte(); err != nil {
		return err
	}
	begin := s.pos - s.keep
	key, err := s.scanKey()
	if err != nil {
		return err
	}
	const other, metadata, typeMeta, status = 0, 1, 2, 3
	what := other
	switch string(key) {
	case "metadata":
		what = metadata
	case "apiVersion":
		what, f.apiVersion = typeMeta, true
	case "kind":
		what, f.kind = typeMeta, true
	case "status":
		what = status
	}
	if _, err := s.peekByte(); err != nil {
		return err
	}
	from := s.pos - s.keep
	if err := s.scanValue(); err != nil {
		return err
	}
	to := s.pos - s.keep
	if what != other {
		f.envelope.addField(begin, to)
	}
	switch what {
	case metadata:
		f.metadata = byteSpan{from, to}
	case typeMeta:
		f.cut = f.cut || to-from < 3 || s.buf[s.keep+from] != '"'
	}
	return nil
}

func (s *scanner) foundItem(f itemFields) (Item, error) {
	raw := s.buf[s.keep:s.pos:s.pos]
	it := Item{Raw: raw, Envelope: f.envelope, HasTypeMeta: f.apiVersion && f.kind && !f.cut, Spaced: s.spaced}
	if f.metadata.to > 0 {
		it.Metadata = raw[f.metadata.from:f.metadata.to:f.metadata.to]
	}
	if !it.HasTypeMeta && (f.apiVersion || f.kind) {
		return cutTypeMeta(it)
	}
	return it, nil
}

// cutTypeMeta copies an item without the fields apiVersion and kind. Only odd aggregated API
// servers send such items.
func cutTypeMeta(it Item) (Item, error) {
	out := Item{Raw: append(make([]byte, 0, len(it.Raw)), '{'), Spaced: it.Spaced}
	f := rawjson.ObjectFields(it.Raw)
	for f.Next() {
		if string(f.Key) == "apiVersion" || string(f.Key) == "kind" {
			continue
		}
		if len(out.Raw) > 1 {
			out.Raw = append(out.Raw, ',')
		}
		out.Raw = append(rawjson.AppendQuoted(out.Raw, string(f.Key)), ':')
		from := len(out.Raw)
		out.Raw = append(out.Raw, f.Value...)
		if string(f.Key) == "metadata" {
			out.Metadata = out.Raw[from:len(out.Raw):len(out.Raw)]
		}
	}
	if f.Err() != nil {
		return Item{}, fmt.Errorf("%w: %w", ErrSyntax, f.Err())
	}
	out.Raw = append(out.Raw, '}')
	return out, nil
}

// ParseObject checks that raw is one JSON object, white space around it aside, and finds its
// metadata. The item's slices lie in raw.
func ParseObject(raw []byte) (Item, error) {
	s := scanner{buf: raw, maxBytes: len(raw), maxDepth: DefaultMaxDepth}
	c, err := s.peekByte()
	if err != nil {
		return Item{}, fmt.Errorf("object: %w", err)
	}
	if c != '{' {
		return Item{}, fmt.Errorf("object: %w", s.unexpectedError(c, "an object"))
	}
	item, err := s.scanItem()
	if err != nil {
		return Item{}, fmt.Errorf("object: %w", err)
	}
	if end := rawjson.SkipSpace(raw, s.pos); end < len(raw) {
		return Item{}, fmt.Errorf("object: %w", s.unexpectedError(raw[end], "the end"))
	}
	return item, nil
}

// decodeMeta reads the list's own metadata; there is one for each page, so that it need not be fast.
func (l *ListMeta) decodeMeta(raw []byte) error {
	var m struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
		Remaining       *int64 `json:"remainingItemCount"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("%w: metadata: %w", ErrNotList, err)
	}
	l.ResourceVersion, l.Continue, l.Remaining = m.ResourceVersion, m.Continue, -1
	if m.Remaining != nil {
		l.Remaining = *m.Remaining
	}
	return nil
}
