package jsonlist

import (
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// scanner checks JSON grammar over a window of the body. What lies between keep and pos stays in
// the window while more is read; positions that must survive a read are therefore remembered
// relative to keep.
type scanner struct {
	src  io.Reader // nil: the window is all there is
	buf  []byte    // the window: bytes read and not yet dropped
	keep int
	pos  int
	base int64 // offset in the body of buf[0]

	maxBytes   int
	maxDepth   int
	large      func() error // may be nil
	largeBytes int
	depth      int
	arrays     []uint64 // one bit for each open bracket: set for an array
	spaced     bool
}

// fillWindow reads more of the body behind the window, first dropping what lies before keep.
func (s *scanner) fillWindow() error {
	if s.src == nil {
		return io.ErrUnexpectedEOF
	}
	if s.keep > 0 {
		n := copy(s.buf, s.buf[s.keep:])
		s.buf, s.base = s.buf[:n], s.base+int64(s.keep)
		s.pos, s.keep = s.pos-s.keep, 0
	}
	if len(s.buf) == cap(s.buf) {
		if len(s.buf) >= s.maxBytes {
			return fmt.Errorf("%w: more than %d bytes", ErrItemTooLarge, s.maxBytes)
		}
		size := min(2*cap(s.buf), s.maxBytes)
		if s.large != nil && size > s.largeBytes {
			if err := s.large(); err != nil {
				return err
			}
		}
		grown := make([]byte, len(s.buf), size)
		copy(grown, s.buf)
		s.buf = grown
	}
	for range 100 {
		n, err := s.src.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		switch {
		case n > 0:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}

// peekByte returns the next byte that is not white space without stepping over it.
func (s *scanner) peekByte() (byte, error) {
	for {
		for s.pos < len(s.buf) {
			c := s.buf[s.pos]
			if c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
				return c, nil
			}
			s.spaced = true
			s.pos++
		}
		if err := s.fillWindow(); err != nil {
			return 0, err
		}
	}
}

func (s *scanner) expectByte(want byte) error {
	c, err := s.peekByte()
	if err != nil {
		return err
	}
	if c != want {
		return s.unexpectedError(c, string(want))
	}
	s.pos++
	return nil
}

// scanKey scans a field name and its colon. The name is returned without quotes, valid until the next
// read.
func (s *scanner) scanKey() ([]byte, error) {
	if c, err := s.peekByte(); err != nil {
		return nil, err
	} else if c != '"' {
		return nil, s.unexpectedError(c, "a field name")
	}
	start := s.pos - s.keep
	escaped, err := s.scanString()
	if err != nil {
		return nil, err
	}
	end := s.pos - s.keep
	if err := s.expectByte(':'); err != nil {
		return nil, err
	}
	quoted := s.buf[s.keep+start : s.keep+end]
	if escaped {
		return rawjson.AppendUnquoted(nil, quoted)
	}
	return quoted[1 : len(quoted)-1], nil
}

// scanValue scans one value of any kind.
func (s *scanner) scanValue() error {
	outer := s.depth
	for {
		c, err := s.peekByte()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			_, err = s.scanString()
		case '{', '[':
			var empty bool
			if empty, err = s.openBracket(c); err == nil && !empty {
				continue
			}
		default:
			err = s.scanScalar(c)
		}
		if err != nil {
			return err
		}
		if done, err := s.closeUpTo(outer); done || err != nil {
			return err
		}
	}
}

// openBracket steps into an object or array. A first field name is scanned, an empty one is closed again.
func (s *scanner) openBracket(bracket byte) (empty bool, err error) {
	if err := s.pushLevel(bracket == '['); err != nil {
		return false, err
	}
	s.pos++
	c, err := s.peekByte()
	if err != nil {
		return false, err
	}
	if c == bracket+2 { // both closing brackets follow two code points behind the opening ones
		s.pos++
		s.depth--
		return true, nil
	}
	if bracket == '{' {
		return false, s.skipKey()
	}
	return false, nil
}

// closeUpTo follows a value: it closes objects and arrays until another value is due (done is
// false) or depth outer is reached.
func (s *scanner) closeUpTo(outer int) (done bool, err error) {
	for s.depth > outer {
		c, err := s.peekByte()
		if err != nil {
			return false, err
		}
		array := s.inArray()
		s.pos++
		switch {
		case c == ',' && array:
			return false, nil
		case c == ',':
			return false, s.skipKey()
		case (c == ']' && array) || (c == '}' && !array):
			s.depth--
		default:
			s.pos--
			return false, s.unexpectedError(c, "a comma or closing bracket")
		}
	}
	return true, nil
}

func (s *scanner) skipKey() error {
	c, err := s.peekByte()
	if err != nil {
		return err
	}
	if c != '"' {
		return s.unexpectedError(c, "a field name")
	}
	if _, err := s.scanString(); err != nil {
		return err
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == ':' {
		s.pos++
		return nil
	}
	return s.expectByte(':')
}

func (s *scanner) pushLevel(array bool) error {
	if s.depth >= s.maxDepth {
		return fmt.Errorf("%w: more than %d levels at byte %d", ErrTooDeep, s.maxDepth, s.offset())
	}
	word, bit := s.depth>>6, uint64(1)<<(s.depth&63)
	if word == len(s.arrays) {
		s.arrays = append(s.arrays, 0)
	}
	if array {
		s.arrays[word] |= bit
	} else {
		s.arrays[word] &^= bit
	}
	s.depth++
	return nil
}

func (s *scanner) inArray() bool {
	d := s.depth - 1
	return s.arrays[d>>6]&(1<<(d&63)) != 0
}

func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

func (s *scanner) unexpectedError(c byte, want string) error {
	return fmt.Errorf("%w: %q at byte %d, want %s", ErrSyntax, c, s.offset(), want)
}
