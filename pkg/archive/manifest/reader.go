package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

const (
	tailBytes    = 64 << 10 // read first, which usually includes the directory
	maxTailBytes = 1 << 20  // of a large manifest
	// maxDirectoryBytes bounds a directory, packed and unpacked, maxDirectory what it takes in
	// memory: those of 50 million items.
	maxDirectoryBytes = 8 << 20
	maxDirectory      = 48 << 20
	// maxMemberBytes bounds the text of a block, whose last line may be that of the largest item, and maxItem
	// what an item takes in memory: an API server stores no larger object.
	maxMemberBytes = 8<<20 + blockBytes
	maxItem        = 48 << 20
)

// RangeReader gives byte ranges of the manifest.
type RangeReader interface {
	// ReadRange opens n bytes from off.
	ReadRange(ctx context.Context, off, n int64) (io.ReadCloser, error)
}

// Reader reads a manifest by ranges. It is safe for concurrent use if its source is.
type Reader struct {
	src     RangeReader
	dir     directory
	trailer Trailer
}

// Open reads the directory: with one range read, or two if the manifest is huge. Anything wrong
// with the manifest is ErrCorrupt; errors of src are passed on.
func Open(ctx context.Context, src RangeReader, size int64) (*Reader, error) {
	n := min(size, max(tailBytes, min(size/512, maxTailBytes)))
	tail, err := readRange(ctx, src, size-n, n)
	if err != nil {
		return nil, err
	}
	offset, length, err := parseFooter(tail, size)
	if err != nil {
		return nil, err
	}
	var packed []byte
	if offset >= size-n {
		packed = tail[offset-(size-n):][:length]
	} else if packed, err = readRange(ctx, src, offset, length); err != nil {
		return nil, err
	}
	r := &Reader{src: src}
	return r, r.parseDirectory(packed, size)
}

func readRange(ctx context.Context, src RangeReader, off, n int64) ([]byte, error) {
	if n <= 0 || n > maxDirectoryBytes {
		return nil, fmt.Errorf("%w: range of %d bytes", ErrCorrupt, n)
	}
	rc, err := src.ReadRange(ctx, off, n)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	defer func() { _ = rc.Close() }()
	b := make([]byte, n)
	if _, err := io.ReadFull(rc, b); err != nil {
		return nil, fmt.Errorf("manifest: %w", refuseEOF(err))
	}
	return b, nil
}

func refuseEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *Reader) parseDirectory(packed []byte, size int64) error {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("%w: directory: %w", ErrCorrupt, err)
	}
	text, err := io.ReadAll(io.LimitReader(zip, maxDirectoryBytes+1))
	if err != nil {
		return fmt.Errorf("%w: directory: %w", ErrCorrupt, err)
	}
	if len(text) > maxDirectoryBytes {
		return fmt.Errorf("%w: directory: unpacks to more than %d bytes", ErrCorrupt, maxDirectoryBytes)
	}
	if len(text) == 0 || text[0] != ',' {
		return fmt.Errorf("%w: no directory where the footer says", ErrCorrupt)
	}
	text[0] = '{'
	var d struct {
		Directory directory `json:"directory"`
		Trailer
	}
	if err := jsonlimit.Unmarshal(text, &d, maxDirectory); err != nil {
		return fmt.Errorf("%w: directory: %w", ErrCorrupt, err)
	}
	r.dir, r.trailer = d.Directory, d.Trailer
	return r.dir.checkBounds(size)
}

// checkBounds makes sure that no number of the directory leads outside the manifest.
func (d *directory) checkBounds(size int64) error {
	end, err := checkBlockOrder(0, d.Blocks, len(d.Kinds), size)
	if err == nil {
		_, err = checkBlockOrder(end, d.Index, 1, size)
	}
	return err
}

// checkBlockOrder returns where the last of some blocks ends, which must follow one another.
func checkBlockOrder(end int64, blocks []block, kinds int, size int64) (int64, error) {
	for i := range blocks {
		b := &blocks[i]
		if b.Offset < end || b.Length <= 0 || b.Offset > size-b.Length || b.Kind < 0 || b.Kind >= kinds {
			return 0, fmt.Errorf("%w: block %d", ErrCorrupt, i)
		}
		end = b.Offset + b.Length
	}
	return end, nil
}

// Header returns what was known before the items.
func (r *Reader) Header() Header { return r.dir.Header }

// Trailer returns what was known after the items.
func (r *Reader) Trailer() Trailer { return r.trailer }

// Kinds returns the kinds in order. The slice must not be modified.
func (r *Reader) Kinds() []KindInfo { return r.dir.Kinds }

// Len returns the number of items.
func (r *Reader) Len() int64 {
	n := int64(0)
	for _, k := range r.dir.Kinds {
		n += k.Items
	}
	return n
}

// firstKey returns where a block begins in the order of keys.
func (r *Reader) firstKey(b *block) []byte {
	return append(append([]byte(r.dir.Kinds[b.Kind].Kind), 0), b.First...)
}

// blockOf returns the block that would hold key, -1 when key comes before all.
func (r *Reader) blockOf(key []byte) int {
	return sort.Search(len(r.dir.Blocks), func(i int) bool { return bytes.Compare(r.firstKey(&r.dir.Blocks[i]), key) > 0 }) - 1
}

// Lookup returns one item with one range read; ErrNotFound if there is none.
func (r *Reader) Lookup(ctx context.Context, key Key) (Item, error) {
	i := r.blockOf(AppendKey(nil, key.Kind, key.Namespace, key.Name))
	if i < 0 {
		return Item{}, fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	b := &r.dir.Blocks[i]
	name := MemberText("name", key.Name)
	for line, err := range r.memberLines(ctx, b.Offset, b.Length) {
		if err != nil {
			return Item{}, err
		}
		if line[0] != '{' || !bytes.Contains(line, name) {
			continue
		}
		item, err := parseItem(line)
		if err != nil || item.Key() == key {
			return item, err
		}
	}
	return Item{}, fmt.Errorf("%w: %s", ErrNotFound, key)
}

func parseItem(line []byte) (Item, error) {
	var item Item
	if err := jsonlimit.Unmarshal(line, &item, maxItem); err != nil {
		return Item{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return item, nil
}

// LookupUID returns the item with that UID with two range reads; ErrNotFound if there is none.
func (r *Reader) LookupUID(ctx context.Context, uid string) (Item, error) {
	i := sort.Search(len(r.dir.Index), func(i int) bool { return r.dir.Index[i].First > uid }) - 1
	if i < 0 {
		return Item{}, fmt.Errorf("%w: UID %s", ErrNotFound, uid)
	}
	b := &r.dir.Index[i]
	want := append(rawjson.AppendQuoted(nil, uid), ':')
	for line, err := range r.memberLines(ctx, b.Offset, b.Length) {
		if err != nil {
			return Item{}, err
		}
		if path, ok := bytes.CutPrefix(line, want); ok {
			return r.lookupPath(ctx, rawjson.String(path))
		}
	}
	return Item{}, fmt.Errorf("%w: UID %s", ErrNotFound, uid)
}

// lookupPath finds the item of a tarball path.
func (r *Reader) lookupPath(ctx context.Context, path string) (Item, error) {
	parts := strings.Split(strings.TrimSuffix(path, ".json"), "/")
	version := ""
	if len(parts) > 3 && parts[2] != "namespaces" && parts[2] != "cluster" {
		version = parts[2]
		parts = append(parts[:2:2], parts[3:]...)
	}
	if len(parts) < 4 {
		return Item{}, fmt.Errorf("%w: path %q", ErrCorrupt, path)
	}
	namespace := ""
	if parts[2] == "namespaces" {
		namespace = parts[3]
	}
	for _, k := range r.dir.Kinds {
		_, v, _, _ := SplitKindName(k.Kind)
		if k.Resource == parts[1] && (version == "" && k.Preferred || v == version) {
			return r.Lookup(ctx, Key{Kind: k.Kind, Namespace: namespace, Name: parts[len(parts)-1]})
		}
	}
	return Item{}, fmt.Errorf("%w: path %q of no kind", ErrCorrupt, path)
}
