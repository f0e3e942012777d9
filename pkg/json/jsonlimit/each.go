package jsonlimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"
)

// Limits bound a list that is read element by element, in bytes.
type Limits struct {
	// Text is the length of the list.
	Text int64
	// Element is the length of one element.
	Element int
	// Member is the length of the value of another member of the object that the list is in; 0 means
	// Element.
	Member int
	// Decoded is what one element may take once it is decoded.
	Decoded int
	// Kept is what all of them may take, for callers that keep them in a slice; 0 for those that do
	// not.
	Kept int
}

// Each decodes the elements of an array one after the other, so that the caller decides what is
// kept of them; null is an empty array. What breaks a limit is ErrLimit. It stops at the first
// error of do, and returns it as it is.
func Each[T any](r io.Reader, limits Limits, do func(*T) error) error {
	in := &byteMeter{r: r, text: limits.Text, element: limits.Element}
	decoder := json.NewDecoder(in)
	if err := decodeElements(decoder, in, limits, do); err != nil {
		return err
	}
	return requireEnd(decoder)
}

// EachIn decodes an object: the elements of the array under name as Each does, every other member
// with member.
func EachIn[T any](r io.Reader, name string, limits Limits, member func(key string, value json.RawMessage) error, do func(*T) error) error {
	in := &byteMeter{r: r, text: limits.Text, element: cmp.Or(limits.Member, limits.Element)}
	decoder := json.NewDecoder(in)
	in.allowElement()
	if first, err := decoder.Token(); err != nil {
		return unexpectedTokenError(err)
	} else if first != json.Delim('{') {
		return fmt.Errorf("object expected, not %v", first)
	}
	for decoder.More() {
		in.allowElement()
		key, err := decoder.Token()
		if err != nil {
			return unexpectedTokenError(err)
		}
		text, _ := key.(string)
		if strings.EqualFold(text, name) {
			of := in.element
			in.element = limits.Element
			err = decodeElements(decoder, in, limits, do)
			in.element = of
		} else {
			var value json.RawMessage
			if err = unexpectedTokenError(decoder.Decode(&value)); err == nil {
				err = in.checkFits(value)
			}
			if err == nil {
				err = member(text, value)
			}
		}
		if err != nil {
			return err
		}
	}
	in.allowElement()
	if _, err := decoder.Token(); err != nil { // the brace
		return unexpectedTokenError(err)
	}
	return requireEnd(decoder)
}

// decodeElements decodes the elements of the array that follows.
func decodeElements[T any](decoder *json.Decoder, in *byteMeter, limits Limits, do func(*T) error) error {
	in.allowElement()
	switch first, err := decoder.Token(); {
	case err != nil:
		return unexpectedTokenError(err)
	case first == nil:
		return nil
	case first != json.Delim('['):
		return fmt.Errorf("array expected, not %v", first)
	}
	kept := 0
	for i := 0; decoder.More(); i++ {
		var raw json.RawMessage
		in.allowElement()
		if err := decoder.Decode(&raw); err != nil {
			return fmt.Errorf("element %d: %w", i, unexpectedTokenError(err))
		}
		if err := in.checkFits(raw); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		var element T
		if err := Unmarshal(raw, &element, limits.Decoded); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		if limits.Kept > 0 {
			if kept += typedSize(raw, 0) + 3*int(unsafe.Sizeof(element)); kept > limits.Kept {
				return fmt.Errorf("%w: %d elements could take %d bytes of memory, %d are allowed", ErrLimit, i+1, kept, limits.Kept)
			}
		}
		if err := do(&element); err != nil {
			return err
		}
	}
	in.allowElement()
	_, err := decoder.Token() // the bracket
	return unexpectedTokenError(err)
}

// requireEnd makes sure that nothing follows, and so that a checksum behind the text is looked at.
func requireEnd(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("something follows the end")
		}
		return err
	}
	return nil
}

func unexpectedTokenError(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// byteMeter ends a text, or an element of it, that is too long.
type byteMeter struct {
	r       io.Reader
	text    int64 // left
	element int
	left    int // of the element
}

// separators is what may stand before an element in a text without white space, with room to spare.
const separators = 16

// allowElement begins an element.
func (m *byteMeter) allowElement() { m.left = m.element + separators }

// checkFits refuses a value that is too long. How much of a value was read before allow depends on the
// reader, and whether it is taken must not.
func (m *byteMeter) checkFits(value json.RawMessage) error {
	if len(value) > m.element {
		return m.elementError()
	}
	return nil
}

func (m *byteMeter) elementError() error {
	return fmt.Errorf("%w: one value takes more than %d bytes", ErrLimit, m.element)
}

// Read implements io.Reader.
func (m *byteMeter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, m.elementError()
	}
	if m.text <= 0 {
		return 0, m.atLimit()
	}
	n, err := m.r.Read(p[:min(int64(len(p)), int64(m.left), m.text)])
	m.left -= n
	m.text -= int64(n)
	return n, err
}

// atLimit distinguishes a text that just fits from one that is longer.
func (m *byteMeter) atLimit() error {
	if _, err := io.ReadFull(m.r, make([]byte, 1)); err != nil {
		return err
	}
	return fmt.Errorf("%w: the text is too long", ErrLimit)
}
