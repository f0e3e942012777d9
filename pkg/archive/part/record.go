package part

import (
	"encoding/binary"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// Records of a sidecar. Numbers are uvarints, texts are preceded by their length.
//
//	stored: key, value: 's', offset, length, UID, path, JSON of the manifest's item as manifest.AppendEntry makes it
//	failed: key, value: 'f'
//
// While the part is written, the number of the member replaces offset and length.
const (
	recordStored = 's'
	recordFailed = 'f'
)

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendStored(dst []byte, member int, e *manifest.Entry) []byte {
	dst = append(dst, recordStored)
	dst = binary.AppendUvarint(dst, uint64(member)) //nolint:gosec // not negative
	dst = appendText(dst, e.Meta.UID)
	dst = appendText(dst, e.Path)
	return manifest.AppendEntry(dst, e)
}

// resolvePlace puts the member's place where its number was.
func resolvePlace(dst, value []byte, members []memberPlace) ([]byte, bool) {
	if len(value) == 0 || value[0] != recordStored {
		return append(dst, value...), len(value) == 1
	}
	member, n := binary.Uvarint(value[1:])
	if n <= 0 || member >= uint64(len(members)) {
		return dst, false
	}
	p := members[member]
	dst = append(dst, recordStored)
	dst = binary.AppendUvarint(dst, uint64(p.offset)) //nolint:gosec // not negative
	dst = binary.AppendUvarint(dst, uint64(p.length)) //nolint:gosec // not negative
	return append(dst, value[1+n:]...), true
}

// Entry is an object of a sidecar. Its slices are valid until the next call.
type Entry struct {
	// Key as manifest.AppendKey makes it.
	Key []byte
	// Stored is false for objects given to Fail; all else is then empty.
	Stored bool
	// Offset and Length of the gzip member in the part.
	Offset, Length int64
	UID, Path      []byte
	// JSON is what manifest.AppendEntry made.
	JSON []byte
}

// ParseEntry decodes a record of a sidecar.
func ParseEntry(key, value []byte) (Entry, error) {
	e := Entry{Key: key}
	if len(value) == 1 && value[0] == recordFailed {
		return e, nil
	}
	if len(value) == 0 || value[0] != recordStored {
		return e, ErrCorrupt
	}
	e.Stored = true
	r := reader{b: value[1:]}
	e.Offset, e.Length = int64(r.readNumber()), int64(r.readNumber()) //nolint:gosec // checked below
	e.UID, e.Path = r.readText(), r.readText()
	e.JSON = r.b
	if r.bad || e.Offset < 0 || e.Length < 0 || len(key) == 0 {
		return e, ErrCorrupt
	}
	return e, nil
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) readNumber() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) readText() []byte {
	n := r.readNumber()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}
