package manifest_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// bound is what reading any manifest may keep alive, in bytes.
const bound = 80 << 20

// peak returns the most that do allocates between two collections, which is an upper bound of what
// it keeps alive.
func peak(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// member is one gzip member of what write writes.
func member(t testing.TB, write func(io.Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	write(zip)
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func repeat(times int, text string) func(io.Writer) {
	return func(w io.Writer) {
		chunk := strings.Repeat(text, 1000)
		for range times / 1000 {
			_, _ = io.WriteString(w, chunk)
		}
	}
}

// forged is a manifest of one block with that directory, which ends with the block's place.
func forged(t testing.TB, items, directory []byte) []byte {
	t.Helper()
	data := append(bytes.Clone(items), directory...)
	return manifest.AppendFooter(data, int64(len(items)), int64(len(directory)))
}

// plain is a directory of one kind and one block.
func plain(t testing.TB, items []byte) []byte {
	t.Helper()
	return member(t, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, `,"directory":{"header":{"backup":"b"},"kinds":[{"kind":"v1/Pod","resource":"pods","preferred":true,"items":1}],`+
			`"blocks":[{"offset":0,"length":%d,"items":1,"first":"a/b"}],"index":[]}}`, len(items))
	})
}

// Sixteen KiB in a bucket become a GiB in their reader: the directory's text of 256 MiB, and
// the structs that three bytes of it each become.
func TestAForgedManifestCostsBoundedMemory(t *testing.T) {
	none := member(t, func(io.Writer) {})
	directories := map[string][]byte{
		"spaces": member(t, repeat(200<<20, " ")),
		"blocks": member(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `,"directory":{"blocks":[`)
			repeat(2_500_000, "{},")(w)
			_, _ = io.WriteString(w, `{}]}}`)
		}),
		"cuts": member(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `,"cuts":[`)
			repeat(2_500_000, "{},")(w)
			_, _ = io.WriteString(w, `{}]}`)
		}),
	}
	for name, directory := range directories {
		data := forged(t, none, directory)
		require.Less(t, len(data), 256<<10, name)
		var err error
		require.Less(t, peak(func() { _, err = manifest.Open(t.Context(), &memory{data: data}, int64(len(data))) }), uint64(bound), name)
		require.ErrorIs(t, err, manifest.ErrCorrupt, name)
	}
}

// One line of a block is an item, and one item's owners are structs of a hundred bytes for three
// bytes of text each.
func TestAForgedItemCostsBoundedMemory(t *testing.T) {
	line := func(begin string, times int, element, end string) []byte {
		return member(t, func(w io.Writer) {
			_, _ = io.WriteString(w, begin)
			repeat(times, element)(w)
			_, _ = io.WriteString(w, end)
		})
	}
	for name, items := range map[string][]byte{
		"owners": line(`{"owners":[`, 5_000_000, "{},", "{}]}\n"), "references": line(`{"references":[`, 5_000_000, "{},", "{}]}\n"),
		"actions": line(`{"actions":[`, 5_000_000, `"",`, "\"\"]}\n"), "name": line(`{"name":"`, 60<<20, "n", "\"}\n"),
	} {
		data := forged(t, items, plain(t, items))
		var err error
		require.Less(t, peak(func() {
			r, opened := manifest.Open(t.Context(), &memory{data: data}, int64(len(data)))
			require.NoError(t, opened, name)
			for _, err = range r.Items(t.Context(), manifest.Filter{}) {
				if err != nil {
					break
				}
			}
		}), uint64(bound), name)
		require.ErrorIs(t, err, manifest.ErrCorrupt, name)
	}
}

// A queue-scheduler asks a backup for its namespaces before it admits a restore; the list was as
// long as the bucket wanted.
func TestAForgedListOfNamespacesCostsBoundedMemory(t *testing.T) {
	items := member(t, func(w io.Writer) {
		for i := range 1_500_000 {
			_, _ = fmt.Fprintf(w, "\"ns-%d\":[\n", i)
		}
	})
	data := forged(t, items, plain(t, items))
	r, err := manifest.Open(t.Context(), &memory{data: data}, int64(len(data)))
	require.NoError(t, err)
	require.Less(t, peak(func() { _, err = r.Namespaces(t.Context()) }), uint64(bound))
	require.ErrorIs(t, err, manifest.ErrCorrupt)
}
