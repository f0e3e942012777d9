package s3store

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const mib = 1 << 20

func objectSource(key string, size int64) objectstore.Source {
	return objectstore.Source{Key: key, Length: size}
}

// checkPlan asserts S3's rules and that the parts are the sources, in order and without a gap.
func checkPlan(t *testing.T, src []objectstore.Source, parts []partSource) {
	t.Helper()
	var flat []objectstore.Source
	for i, p := range parts {
		var size int64
		for _, piece := range p.pieces {
			size += sourceLength(piece)
		}
		require.Equal(t, p.size, size)
		require.LessOrEqual(t, size, int64(maxCopy))
		require.True(t, size >= minPart || i == len(parts)-1, "part %d of %d has %d bytes", i, len(parts), size)
		require.True(t, len(p.pieces) == 1 || size <= maxMerged, "part %d would be held in memory: %d bytes", i, size)
		flat = append(flat, p.pieces...)
	}
	require.Equal(t, joinNeighbours(src), joinNeighbours(flat))
}

// joinNeighbours merges neighbouring pieces, so that lists cut in different places compare equal.
func joinNeighbours(src []objectstore.Source) []objectstore.Source {
	var out []objectstore.Source
	for _, s := range src {
		if sourceLength(s) == 0 {
			continue
		}
		if n := len(out); n > 0 {
			last := &out[n-1]
			if s.Data != nil && last.Data != nil {
				last.Data = append(bytes.Clone(last.Data), s.Data...)
				continue
			}
			if s.Data == nil && last.Data == nil && last.Key == s.Key && last.Offset+last.Length == s.Offset {
				last.Length += s.Length
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

func TestPlan(t *testing.T) {
	literal := objectstore.Source{Data: []byte("literal")}
	for name, tc := range map[string]struct {
		src   []objectstore.Source
		parts int
	}{
		"one":                {[]objectstore.Source{objectSource("a", 6*mib)}, 1},
		"copies stay copies": {[]objectstore.Source{objectSource("a", 6*mib), objectSource("b", 7*mib)}, 2},
		"preamble":           {[]objectstore.Source{literal, objectSource("a", 100*mib), literal}, 3},
		"preamble and small": {[]objectstore.Source{literal, objectSource("a", 6*mib), literal}, 2},
		"tiny only":          {[]objectstore.Source{literal, objectSource("a", 10), literal}, 1},
		"over the limit":     {[]objectstore.Source{objectSource("a", 2*maxCopy+1)}, 3},
		"nothing":            {[]objectstore.Source{{Data: []byte{}}, objectSource("a", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			parts, err := planParts(tc.src)
			require.NoError(t, err)
			require.Len(t, parts, tc.parts)
			checkPlan(t, tc.src, parts)
		})
	}
}

func TestPlanGrowsParts(t *testing.T) {
	var src []objectstore.Source
	for range 12_000 { // too many for parts of 5 MiB, one each
		src = append(src, objectSource("a", 5*mib))
	}
	parts, err := planParts(src)
	require.NoError(t, err)
	require.LessOrEqual(t, len(parts), maxParts)
	src = nil
	for range 200_000 {
		src = append(src, objectSource("a", 60*mib))
	}
	_, err = planParts(src)
	require.ErrorIs(t, err, objectstore.ErrSize)
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte{0, 1, 200, 3, 250, 255, 9})
	f.Add([]byte{255, 0, 255, 0})
	f.Fuzz(func(t *testing.T, sizes []byte) {
		var src []objectstore.Source
		for i, n := range sizes {
			if n%3 == 0 {
				src = append(src, objectstore.Source{Data: bytes.Repeat([]byte{n}, int(n))})
				continue
			}
			src = append(src, objectstore.Source{Key: string(rune('a' + i%26)), Offset: int64(i), Length: int64(n) * int64(n) * 1000})
		}
		parts, err := planParts(src)
		require.NoError(t, err)
		checkPlan(t, src, parts)
	})
}

func TestWindows(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 20)
	r := bytes.NewReader(data)
	w := &uploadWindow{r: r, base: 15, size: 12}
	for range 2 { // as a retry does
		at, err := w.Seek(0, io.SeekStart)
		require.NoError(t, err)
		require.Zero(t, at)
		got, err := io.ReadAll(w)
		require.NoError(t, err)
		require.Equal(t, "567890123456", string(got))
	}
	end, err := w.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	require.EqualValues(t, 12, end)
	_, err = w.Seek(-1, io.SeekStart)
	require.Error(t, err)
	short := &uploadWindow{r: bytes.NewReader(data[:5]), size: 12}
	_, err = io.ReadAll(short)
	require.ErrorIs(t, err, objectstore.ErrSize)

	parts := cutWindows(r, 7, 2*singlePut+5)
	require.Len(t, parts, 3)
	require.EqualValues(t, 7+2*singlePut, parts[2].body.base)
	require.EqualValues(t, 5, parts[2].size)
}
