package itemset

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrCorruptSpool means that a file does not hold what it should.
var ErrCorruptSpool = errors.New("corrupt item spool")

// SpooledItem is an object that waits.
type SpooledItem struct {
	Group, Version, Kind, Resource string
	Namespace, Name                string
	// Cut is the revision the object was listed at, when it is not the backup's.
	Cut string
	// Raw is the object as JSON, with apiVersion and kind.
	Raw []byte
}

// prefixBytes is how long the two lengths are that a record begins with.
const prefixBytes = 8

// What is believed about the lengths of a record: more than its seven names and any object can have
// (rawlist.Options.MaxItemBytes).
const (
	maxTexts = 64 << 10
	maxBody  = 16 << 20
)

// namingTexts are the fields that name the object, in their order on disk.
func (it *SpooledItem) namingTexts() [7]*string {
	return [...]*string{&it.Group, &it.Version, &it.Kind, &it.Resource, &it.Namespace, &it.Name, &it.Cut}
}

// appendRecord appends the record of an object whose raw is it.Raw, compressed into scratch.
func appendRecord(dst []byte, it *SpooledItem, scratch []byte) (record, grown []byte) {
	body := s2.Encode(scratch[:cap(scratch)], it.Raw)
	from := len(dst)
	dst = append(dst, make([]byte, prefixBytes)...)
	for _, text := range it.namingTexts() {
		dst = binary.AppendUvarint(dst, uint64(len(*text)))
		dst = append(dst, *text...)
	}
	binary.LittleEndian.PutUint32(dst[from:], uint32(len(dst)-from-prefixBytes)) //nolint:gosec // names are short
	binary.LittleEndian.PutUint32(dst[from+4:], uint32(len(body)))               //nolint:gosec // objects are far below 4 GiB
	return append(dst, body...), body
}

// recordLengths returns how long the two halves of a record are.
func recordLengths(prefix []byte) (texts, body int, err error) {
	texts = int(binary.LittleEndian.Uint32(prefix))
	body = int(binary.LittleEndian.Uint32(prefix[4:]))
	if texts > maxTexts || body > maxBody {
		return 0, 0, fmt.Errorf("%w: a record of %d bytes", ErrCorruptSpool, texts+body)
	}
	return texts, body, nil
}

// decodeTexts reads the names of a record.
func (it *SpooledItem) decodeTexts(b []byte) error {
	for _, text := range it.namingTexts() {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return fmt.Errorf("%w: a name is cut off", ErrCorruptSpool)
		}
		*text = string(b[used : used+int(n)]) //nolint:gosec // at most len(b)
		b = b[used+int(n):]                   //nolint:gosec // the same
	}
	if len(b) > 0 || it.Name == "" || it.Kind == "" || it.Resource == "" {
		return fmt.Errorf("%w: a record names no object", ErrCorruptSpool)
	}
	return nil
}

// decodeBody reads the object of a record.
func (it *SpooledItem) decodeBody(b []byte) error {
	n, err := s2.DecodedLen(b)
	if err != nil || n > maxBody {
		return fmt.Errorf("%w: body of %s/%s", ErrCorruptSpool, it.Namespace, it.Name)
	}
	if it.Raw, err = s2.Decode(nil, b); err != nil {
		return fmt.Errorf("%w: body of %s/%s: %w", ErrCorruptSpool, it.Namespace, it.Name, err)
	}
	return nil
}

// GroupResource returns the resource of the object.
func (it *SpooledItem) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: it.Group, Resource: it.Resource}
}

// GroupVersionKind returns the kind of the object.
func (it *SpooledItem) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: it.Group, Version: it.Version, Kind: it.Kind}
}
