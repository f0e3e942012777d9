package part

import (
	"bytes"
	"strconv"
	"time"
)

const (
	blockBytes   = 512
	nameBytes    = 100
	prefixBytes  = 155
	entryMode    = "0000755\x00" // Velero 1.18 layout
	maxEntrySize = 1<<33 - 1     // eleven octal digits
)

// appendHeader appends the tar header of a regular file: USTAR where the path fits, else preceded
// by a PAX record (POSIX.1-2001, pax interchange format).
func appendHeader(dst []byte, path []byte, size int64, modTime time.Time) []byte {
	if prefix, name, ok := splitName(path); ok {
		return appendBlock(dst, prefix, name, size, modTime, '0')
	}
	record := paxRecord("path", path)
	short := path[max(0, len(path)-nameBytes+12):]
	short = short[bytes.LastIndexByte(short, '/')+1:]
	dst = appendBlock(dst, nil, asciiOnly(append([]byte("PaxHeaders/"), short...)), int64(len(record)), modTime, 'x')
	dst = append(dst, record...)
	dst = append(dst, zeros[:paddingSize(int64(len(record)))]...)
	return appendBlock(dst, nil, asciiOnly(short), size, modTime, '0')
}

var zeros [blockBytes]byte

func paddingSize(size int64) int64 { return -size & (blockBytes - 1) }

// splitName divides a path into USTAR's two fields.
func splitName(path []byte) (prefix, name []byte, ok bool) {
	for _, c := range path {
		if c >= 0x80 || c < 0x20 {
			return nil, nil, false
		}
	}
	if len(path) <= nameBytes {
		return nil, path, true
	}
	if len(path) > prefixBytes+1+nameBytes {
		return nil, nil, false
	}
	i := bytes.LastIndexByte(path[:min(len(path), prefixBytes+1)], '/')
	if i <= 0 || len(path)-i-1 > nameBytes || len(path)-i-1 == 0 {
		return nil, nil, false
	}
	return path[:i], path[i+1:], true
}

// asciiOnly replaces what USTAR's fields cannot hold; readers take the path from the PAX record.
func asciiOnly(s []byte) []byte {
	out := bytes.Clone(s)
	for i, c := range out {
		if c >= 0x80 || c < 0x20 {
			out[i] = '_'
		}
	}
	return out
}

// paxRecord returns "<length> key=value\n", where length counts the whole record.
func paxRecord(key string, value []byte) []byte {
	rest := len(key) + len(value) + 3
	n := rest + len(strconv.Itoa(rest))
	n = rest + len(strconv.Itoa(n))
	out := strconv.AppendInt(nil, int64(n), 10)
	out = append(append(append(out, ' '), key...), '=')
	return append(append(out, value...), '\n')
}

func appendBlock(dst, prefix, name []byte, size int64, modTime time.Time, kind byte) []byte {
	from := len(dst)
	dst = append(dst, zeros[:]...)
	b := dst[from:]
	copy(b[0:nameBytes], name)
	copy(b[100:108], entryMode)
	copy(b[108:116], "0000000\x00")
	copy(b[116:124], "0000000\x00")
	putOctal(b[124:135], size)
	putOctal(b[136:147], max(0, modTime.Unix()))
	copy(b[148:156], "        ")
	b[156] = kind
	copy(b[257:265], "ustar\x0000")
	copy(b[345:345+prefixBytes], prefix)
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	putOctal(b[148:154], sum)
	b[154] = 0
	return dst
}

// putOctal fills field with v in octal digits.
func putOctal(field []byte, v int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = byte('0' + v&7)
		v >>= 3
	}
}
