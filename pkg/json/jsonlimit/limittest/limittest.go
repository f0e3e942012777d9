// Package limittest is for tests of what bytes from outside may cost: hostile texts, and what a
// decoder of them allocates.
package limittest

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
)

// Allocated returns how many bytes do allocates, and so the most it can keep alive. Other
// goroutines count, too.
func Allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// List returns a text of that length at least: what comes before a list, one element again and
// again, and what follows.
func List(before, element, after string, length int) io.Reader {
	chunk := strings.Repeat(element+",", 1+1000/len(element))
	return io.MultiReader(strings.NewReader(before), &repeated{chunk: chunk, left: length}, strings.NewReader(element+after))
}

// Packed returns a text as gzip.
func Packed(t testing.TB, text io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := io.Copy(zip, text)
	require.NoError(t, errors.Join(err, zip.Close()))
	return out.Bytes()
}

// PackedText returns a text as gzip.
func PackedText(t testing.TB, text string) []byte { return Packed(t, strings.NewReader(text)) }

// Text returns a text as bytes.
func Text(t testing.TB, text io.Reader) []byte {
	t.Helper()
	data, err := io.ReadAll(text)
	require.NoError(t, err)
	return data
}

// repeated gives whole chunks until enough was given.
type repeated struct {
	chunk string
	rest  string
	left  int
}

// Read implements io.Reader.
func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		if r.left <= 0 {
			return 0, io.EOF
		}
		r.rest = r.chunk
		r.left -= len(r.chunk)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
