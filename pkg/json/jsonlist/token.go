package jsonlist

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// scanString scans the string at pos and reports whether it holds escapes.
func (s *scanner) scanString() (escaped bool, err error) {
	for s.pos++; ; {
		s.pos = rawjson.StringSpecial(s.buf, s.pos)
		if s.pos == len(s.buf) {
			if err := s.fillWindow(); err != nil {
				return escaped, err
			}
			continue
		}
		switch c := s.buf[s.pos]; c {
		case '"':
			s.pos++
			return escaped, nil
		case '\\':
			escaped = true
			if err := s.scanEscape(); err != nil {
				return escaped, err
			}
		default:
			return escaped, fmt.Errorf("%w: control character %#x in string at byte %d", ErrSyntax, c, s.offset())
		}
	}
}

// scanEscape steps over the escape sequence at pos.
func (s *scanner) scanEscape() error {
	s.pos++
	c, err := s.nextByte()
	if err != nil {
		return err
	}
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			if c, err = s.nextByte(); err != nil {
				return err
			}
			if !isHex(c) {
				s.pos--
				return s.unexpectedError(c, "a hexadecimal digit")
			}
		}
		return nil
	}
	s.pos--
	return s.unexpectedError(c, "an escape")
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// nextByte steps over one byte.
func (s *scanner) nextByte() (byte, error) {
	if s.pos == len(s.buf) {
		if err := s.fillWindow(); err != nil {
			return 0, err
		}
	}
	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

// scanScalar scans a literal or number that begins with c.
func (s *scanner) scanScalar(c byte) error {
	start, offset := s.pos-s.keep, s.offset()
	for {
		for s.pos < len(s.buf) && isScalar(s.buf[s.pos]) {
			s.pos++
		}
		if s.pos < len(s.buf) {
			break
		}
		if err := s.fillWindow(); err != nil {
			return err
		}
	}
	text := s.buf[s.keep+start : s.pos]
	switch c {
	case 't', 'f', 'n':
		if t := string(text); t == "true" || t == "false" || t == "null" {
			return nil
		}
	default:
		if validNumber(text) {
			return nil
		}
	}
	if len(text) > 32 {
		text = text[:32]
	}
	return fmt.Errorf("%w: %q at byte %d, want a value", ErrSyntax, text, offset)
}

func isScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// validNumber checks RFC 8259's grammar of numbers.
func validNumber(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	n := countDigits(b)
	if n == 0 || (n > 1 && b[0] == '0') {
		return false
	}
	if b = b[n:]; len(b) > 0 && b[0] == '.' {
		if n = countDigits(b[1:]); n == 0 {
			return false
		}
		b = b[1+n:]
	}
	if len(b) > 0 && b[0]|0x20 == 'e' {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		n = countDigits(b)
		return n > 0 && n == len(b)
	}
	return len(b) == 0
}

func countDigits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}
