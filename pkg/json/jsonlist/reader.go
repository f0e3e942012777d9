package jsonlist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

const (
	bufferBytes     = 128 << 10
	bufferKeptBytes = 1 << 20 // a buffer that one huge item made grow is not kept for the next body
)

// Reader splits one list body after another. It is not safe for concurrent use.
type Reader struct {
	s     scanner
	opts  Options
	list  ListMeta
	state readerState
	err   error // ends the body: io.EOF or a failure
	items bool  // the field "items" was seen
}

type readerState uint8

const (
	atStart   readerState = iota // before the list's opening brace
	atField                      // where a field of the list or its closing brace is due
	atItem                       // inside items, where the first item is due
	afterItem                    // inside items, behind an item
)

// NewReader returns a Reader of the list body r.
func NewReader(r io.Reader, o Options) *Reader {
	if o.MaxItemBytes <= 0 {
		o.MaxItemBytes = DefaultMaxItemBytes
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = DefaultMaxDepth
	}
	reader := &Reader{opts: o}
	reader.Reset(r)
	return reader
}

// Reset starts over with another body, keeping the buffer.
func (r *Reader) Reset(body io.Reader) {
	buf := r.s.buf
	if size := min(bufferBytes, r.opts.MaxItemBytes); cap(buf) < size || cap(buf) > bufferKeptBytes {
		buf = make([]byte, 0, size)
	}
	arrays := r.s.arrays
	r.s = scanner{src: body, buf: buf[:0], arrays: arrays, maxBytes: r.opts.MaxItemBytes, maxDepth: r.opts.MaxDepth,
		large: r.opts.Large, largeBytes: r.opts.LargeBytes}
	r.list, r.state, r.err, r.items = ListMeta{Remaining: -1}, atStart, nil, false
}

// List returns the metadata of the list. It is complete once Next has returned io.EOF;
// before that it holds what came ahead of the items, which for custom resources is nothing.
func (r *Reader) List() ListMeta { return r.list }

// Next returns the next item; io.EOF after the last one, when the whole body has been read and was
// one list. A body that ends early is io.ErrUnexpectedEOF, an error of the body itself is returned
// wrapped. Errors are final.
func (r *Reader) Next() (Item, error) {
	if r.err != nil {
		return Item{}, r.err
	}
	item, err := r.advanceItem()
	if err != nil {
		if err != io.EOF { //nolint:errorlint // io.EOF itself is the contract
			err = fmt.Errorf("list body: %w", err)
		}
		r.err = err
		return Item{}, err
	}
	return item, nil
}

func (r *Reader) advanceItem() (Item, error) {
	for {
		r.s.keep = r.s.pos
		c, err := r.s.peekByte()
		if err != nil {
			return Item{}, err
		}
		switch r.state {
		case atStart:
			err = r.beginList(c)
		case atField:
			err = r.scanField(c)
		case atItem, afterItem:
			var item Item
			var found bool
			if item, found, err = r.scanElement(c); found {
				return item, nil
			}
		}
		if err != nil {
			return Item{}, err
		}
	}
}

func (r *Reader) beginList(c byte) error {
	if c != '{' {
		return fmt.Errorf("%w: the body begins with %q", ErrNotList, c)
	}
	r.s.pos++
	if err := r.s.pushLevel(false); err != nil {
		return err
	}
	c, err := r.s.peekByte()
	if err != nil {
		return err
	}
	if c == '}' {
		return r.finishList()
	}
	r.state = atField
	return r.listField()
}

// scanField is called behind a value of the list.
func (r *Reader) scanField(c byte) error {
	switch c {
	case '}':
		return r.finishList()
	case ',':
		r.s.pos++
		return r.listField()
	}
	return r.s.unexpectedError(c, "a comma or closing brace")
}

func (r *Reader) listField() error {
	key, err := r.s.scanKey()
	if err != nil {
		return err
	}
	var take func([]byte) error
	name := string(key)
	switch name {
	case "items":
		return r.openItems()
	case "metadata":
		take = r.list.decodeMeta
	case "kind":
		take = func(v []byte) error { return stringField("kind", v, &r.list.Kind) }
	case "apiVersion":
		take = func(v []byte) error { return stringField("apiVersion", v, &r.list.APIVersion) }
	}
	if _, err := r.s.peekByte(); err != nil {
		return err
	}
	r.s.keep = r.s.pos
	if err := r.s.scanValue(); err != nil {
		return err
	}
	if take == nil {
		return nil
	}
	if n := r.s.pos - r.s.keep; n > maxListBytes {
		return fmt.Errorf("%w: %s of the list has %d bytes", ErrItemTooLarge, name, n)
	}
	return take(r.s.buf[r.s.keep:r.s.pos])
}

func (r *Reader) openItems() error {
	if r.items {
		return fmt.Errorf("%w: two fields named items", ErrNotList)
	}
	r.items = true
	c, err := r.s.peekByte()
	if err != nil {
		return err
	}
	switch c {
	case '[':
		r.s.pos++
		r.state = atItem
		return r.s.pushLevel(true)
	case 'n': // null: how Go writes an empty list
		return r.s.scanValue()
	}
	return fmt.Errorf("%w: items is no array", ErrNotList)
}

func (r *Reader) scanElement(c byte) (Item, bool, error) {
	if c == ']' {
		r.s.pos++
		r.s.depth--
		r.state = atField
		return Item{}, false, nil
	}
	if r.state == afterItem {
		if c != ',' {
			return Item{}, false, r.s.unexpectedError(c, "a comma or closing bracket")
		}
		r.s.pos++
		var err error
		if c, err = r.s.peekByte(); err != nil {
			return Item{}, false, err
		}
	}
	if c != '{' {
		return Item{}, false, fmt.Errorf("%w: an item begins with %q", ErrNotList, c)
	}
	r.state = afterItem
	item, err := r.s.scanItem()
	return item, err == nil, err
}

// finishList reads what follows the last field: the closing brace and nothing else.
func (r *Reader) finishList() error {
	r.s.pos++
	r.s.depth--
	r.s.keep = r.s.pos
	c, err := r.s.peekByte()
	if err == nil {
		return r.s.unexpectedError(c, "the end of the body")
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !r.items && !strings.HasSuffix(r.list.Kind, "List") {
		return fmt.Errorf("%w: kind %q without items", ErrNotList, r.list.Kind)
	}
	return io.EOF
}

func stringField(name string, v []byte, into *string) error {
	if rawjson.IsNull(v) {
		return nil
	}
	s, err := rawjson.AppendUnquoted(nil, v)
	if err != nil {
		return fmt.Errorf("%w: %s is no string", ErrNotList, name)
	}
	*into = string(bytes.Clone(s))
	return nil
}
