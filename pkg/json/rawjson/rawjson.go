// Package rawjson finds and writes values in JSON text without decoding it into Go values.
//
// It is for text whose grammar was checked before (by jsonlist) or whose reader checks what it
// takes out. Malformed text gives ErrSyntax or a wrong value, never a panic and never an access
// outside the text.
package rawjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrSyntax means that the text is not JSON, or that a value has another type than was asked for.
var ErrSyntax = errors.New("invalid JSON")

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// StringSpecial returns the index of the first byte from i on that ends or breaks a run of plain
// string bytes: a quote, a backslash or a control character. It returns len(b) when there is none.
// Eight bytes are tested at once: strings are most of what an API server sends.
func StringSpecial(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(lows*'"'), w^(lows*'\\')
		// Each term is exact up to its first hit, so the lowest bit of all of them is.
		hit := ((quote - lows) &^ quote) | ((slash - lows) &^ slash) | ((w - lows*0x20) &^ w)
		if hit &= highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < 0x20 {
			return i
		}
	}
	return i
}

// SkipSpace returns the index of the first byte from i on that is not white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// SkipString returns the index behind the string that begins with the quote at b[i], and whether it
// holds escapes.
func SkipString(b []byte, i int) (end int, escaped bool, err error) {
	if i >= len(b) || b[i] != '"' {
		return i, false, syntaxError("string expected", i)
	}
	for i++; ; {
		i = StringSpecial(b, i)
		switch {
		case i >= len(b):
			return i, escaped, syntaxError("string not closed", i)
		case b[i] == '"':
			return i + 1, escaped, nil
		case b[i] == '\\':
			escaped = true
			i += 2
		default:
			return i, escaped, syntaxError("control character in string", i)
		}
	}
}

// SkipValue returns the index behind the value that begins at b[i]. Brackets are counted, not
// matched.
func SkipValue(b []byte, i int) (int, error) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, _, err := SkipString(b, i)
			if err != nil {
				return end, err
			}
			i = end
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\n', '\t', '\r', ',', ':':
			i++
			continue
		default:
			i = skipScalar(b, i)
		}
		if depth <= 0 {
			if depth < 0 {
				return i, syntaxError("value expected", i)
			}
			return i, nil
		}
	}
	return i, syntaxError("value not closed", i)
}

func skipScalar(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ':', '"', '{', '[', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return i
}

// IsNull reports whether the value is null.
func IsNull(value []byte) bool { return string(value) == "null" }

func syntaxError(what string, at int) error {
	return fmt.Errorf("%w: %s at byte %d", ErrSyntax, what, at)
}
