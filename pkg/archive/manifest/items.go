package manifest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Filter selects items. The zero value selects all.
type Filter struct {
	// Kinds as KindName returns them; empty means all.
	Kinds []string
	// Namespaces; empty means all, "" in it means cluster-scoped items.
	Namespaces []string
	// After skips items up to and including this key.
	After *Key
	// Texts are what the line of an item has to hold, as JSON that MemberText makes: others are left out without being
	// decoded, which is most of the work. Items that pass have to be looked at still.
	Texts [][]byte
}

// MemberText is how the line of an item has a field, label or annotation of that value.
func MemberText(name, value string) []byte {
	return rawjson.AppendQuoted(append(rawjson.AppendQuoted(nil, name), ':'), value)
}

// Items yields the items that pass f in order of keys and ends after the first error. Blocks of
// other kinds are not read; neighbouring blocks are read as one stream.
func (r *Reader) Items(ctx context.Context, f Filter) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for i := 0; i < len(r.dir.Blocks); i++ {
			if !r.wantsBlock(i, &f) {
				continue
			}
			from := r.dir.Blocks[i].Offset
			for i+1 < len(r.dir.Blocks) && r.wantsBlock(i+1, &f) {
				i++
			}
			end := r.dir.Blocks[i].Offset + r.dir.Blocks[i].Length
			if !r.yieldBlocks(ctx, from, end-from, &f, yield) {
				return
			}
		}
	}
}

// yieldBlocks yields the items of a run of blocks, false to stop.
func (r *Reader) yieldBlocks(ctx context.Context, off, n int64, f *Filter, yield func(Item, error) bool) bool {
	for line, err := range r.memberLines(ctx, off, n) {
		if err != nil {
			yield(Item{}, err)
			return false
		}
		if line[0] != '{' || slices.ContainsFunc(f.Texts, func(text []byte) bool { return !bytes.Contains(line, text) }) {
			continue
		}
		item, err := parseItem(line)
		if err != nil {
			yield(Item{}, err)
			return false
		}
		if f.passesItem(&item) && !yield(item, nil) {
			return false
		}
	}
	return true
}

func (f *Filter) passesItem(i *Item) bool {
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, i.Namespace) {
		return false
	}
	if len(f.Kinds) == 0 && f.After == nil {
		return true
	}
	key := i.Key()
	return (len(f.Kinds) == 0 || slices.Contains(f.Kinds, key.Kind)) && (f.After == nil || key.Compare(*f.After) > 0)
}

// wantsBlock reports whether block i may hold items that pass f.
func (r *Reader) wantsBlock(i int, f *Filter) bool {
	last := len(r.dir.Kinds) - 1
	if i+1 < len(r.dir.Blocks) {
		next := &r.dir.Blocks[i+1]
		last = next.Kind
		if f.After != nil && bytes.Compare(r.firstKey(next), AppendKey(nil, f.After.Kind, f.After.Namespace, f.After.Name)) <= 0 {
			return false
		}
		if next.Kind == r.dir.Blocks[i].Kind && !f.wantsRange(r.dir.Blocks[i].First, next.First) {
			return false
		}
	}
	if len(f.Kinds) == 0 {
		return true
	}
	for k := r.dir.Blocks[i].Kind; k <= last; k++ {
		if slices.Contains(f.Kinds, r.dir.Kinds[k].Kind) {
			return true
		}
	}
	return false
}

// wantsRange reports whether a namespace of the filter may have keys "namespace/name" from one key up to
// another, which is exclusive. "0" follows "/".
func (f *Filter) wantsRange(from, end string) bool {
	return len(f.Namespaces) == 0 || slices.ContainsFunc(f.Namespaces, func(ns string) bool { return ns+"0" > from && ns+"/" < end })
}

// memberLines yields the lines of consecutive gzip members without their comma, valid until the next one.
// Empty lines are left out.
func (r *Reader) memberLines(ctx context.Context, off, n int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		rc, err := r.src.ReadRange(ctx, off, n)
		if err != nil {
			yield(nil, fmt.Errorf("manifest: %w", err))
			return
		}
		defer func() { _ = rc.Close() }()
		in := &countedReader{r: rc}
		if err := eachLine(in, yield); err != nil {
			yield(nil, err)
		} else if in.n < n && in.ended {
			yield(nil, fmt.Errorf("%w: %w", ErrCorrupt, io.ErrUnexpectedEOF))
		}
	}
}

// countedReader notices a source that ends early.
type countedReader struct {
	r     io.Reader
	n     int64
	ended bool
	err   error
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if errors.Is(err, io.EOF) {
		c.ended = true
	} else if err != nil {
		c.err = err
	}
	return n, err
}

// eachLine returns nil at the end or when yield stops. A member is read to its checksum before a line of it is yielded.
func eachLine(in *countedReader, yield func([]byte, error) bool) error {
	fail := func(err error) error {
		if in.err != nil { // the source's, not the content's
			return fmt.Errorf("manifest: %w", in.err)
		}
		return fmt.Errorf("%w: %w", ErrCorrupt, refuseEOF(err))
	}
	packed := bufio.NewReaderSize(in, 64<<10)
	zip, err := gzip.NewReader(packed)
	if err != nil {
		return fail(err)
	}
	var member bytes.Buffer
	for {
		zip.Multistream(false)
		member.Reset()
		if _, err := member.ReadFrom(io.LimitReader(zip, maxMemberBytes+1)); err != nil {
			return fail(err)
		}
		if member.Len() > maxMemberBytes {
			return fmt.Errorf("%w: block of more than %d bytes", ErrCorrupt, maxMemberBytes)
		}
		for line := range bytes.SplitSeq(member.Bytes(), []byte("\n")) {
			if line = bytes.TrimSuffix(line, []byte(",")); len(line) > 0 && !yield(line, nil) {
				in.ended = false
				return nil
			}
		}
		if err := zip.Reset(packed); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fail(err)
		}
	}
}
