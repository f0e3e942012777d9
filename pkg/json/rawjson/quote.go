package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendUnquoted appends the string that the JSON string quoted encodes. Like encoding/json it
// turns invalid UTF-8 and lone surrogates into U+FFFD.
func AppendUnquoted(dst, quoted []byte) ([]byte, error) {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return dst, syntaxError("string expected", 0)
	}
	s := quoted[1 : len(quoted)-1]
	from := len(dst)
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			break
		}
		dst = append(dst, s[:n]...)
		var used int
		if dst, used = appendEscape(dst, s[n:]); used == 0 {
			return dst, syntaxError("invalid escape", len(quoted)-len(s)+n)
		}
		s = s[n+used:]
	}
	dst = append(dst, s...)
	if !utf8.Valid(dst[from:]) {
		dst = append(dst[:from], bytes.Clone(replaceInvalid(dst[from:]))...)
	}
	return dst, nil
}

// replaceInvalid differs from bytes.ToValidUTF8 in giving each invalid byte its own replacement, as
// encoding/json does.
func replaceInvalid(s []byte) []byte {
	out := make([]byte, 0, len(s)+8)
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		out = utf8.AppendRune(out, r)
		s = s[n:]
	}
	return out
}

const singles = `"\/bfnrt`

// appendEscape appends what the escape at the start of s encodes and returns its length, 0 when
// it is invalid.
func appendEscape(dst, s []byte) ([]byte, int) {
	if len(s) < 2 {
		return dst, 0
	}
	if k := bytes.IndexByte([]byte(singles), s[1]); k >= 0 {
		return append(dst, "\"\\/\b\f\n\r\t"[k]), 2
	}
	r := hexRune(s)
	if r < 0 {
		return dst, 0
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 6
	}
	if pair := utf16.DecodeRune(r, hexRune(s[6:])); pair != utf8.RuneError {
		return utf8.AppendRune(dst, pair), 12
	}
	return utf8.AppendRune(dst, utf8.RuneError), 6
}

// hexRune decodes \uXXXX, -1 when s does not begin with one.
func hexRune(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range s[2:6] {
		d := hexDigit(c)
		if d < 0 {
			return -1
		}
		r = r<<4 | d
	}
	return r
}

func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}

const hexDigits = "0123456789abcdef"

// AppendQuoted appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; nothing is escaped for
// HTML.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscaped(dst, c)
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\t':
		return append(dst, '\\', 't')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c >= utf8.RuneSelf:
		return append(dst, "\ufffd"...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// AppendCompact appends text without the white space between its tokens.
func AppendCompact(dst, text []byte) ([]byte, error) {
	for i := 0; i < len(text); {
		switch text[i] {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end, _, err := SkipString(text, i)
			if err != nil {
				return dst, err
			}
			dst = append(dst, text[i:end]...)
			i = end
		default:
			dst = append(dst, text[i])
			i++
		}
	}
	return dst, nil
}
