package manifest_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

// bound is what reading any manifest may keep alive, in bytes.
const bound = 80 << 20

// gzipMember is one gzip member of what write writes.
func gzipMember(t testing.TB, write func(io.Writer)) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	write(zip)
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func repeatText(times int, text string) func(io.Writer) {
	return func(w io.Writer) {
		chunk := strings.Repeat(text, 1000)
		for range times / 1000 {
			_, _ = io.WriteString(w, chunk)
		}
	}
}

// forgedManifest is a manifest of one block with that directory, which ends with the block's place.
func forgedManifest(t testing.TB, items, directory []byte) []byte {
	t.Helper()
	data := append(bytes.Clone(items), directory...)
	return manifest.AppendFooter(data, int64(len(items)), int64(len(directory)))
}

// plainDirectory is a directory of one kind and one block.
func plainDirectory(t testing.TB, items []byte) []byte {
	t.Helper()
	return gzipMember(t, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, `,"directory":{"header":{"backup":"b"},"kinds":[{"kind":"v1/Pod","resource":"pods","preferred":true,"items":1}],`+
			`"blocks":[{"offset":0,"length":%d,"items":1,"first":"a/b"}],"index":[]}}`, len(items))
	})
}

// Sixteen KiB in a bucket become a GiB in their reader: the directory's text of 256 MiB, and
// the structs that three bytes of it each become.
func TestAForgedManifestCostsBoundedMemory(t *testing.T) {
	none := gzipMember(t, func(io.Writer) {})
	directories := map[string][]byte{
		"spaces": gzipMember(t, repeatText(200<<20, " ")),
		"blocks": gzipMember(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `,"directory":{"blocks":[`)
			repeatText(2_500_000, "{},")(w)
			_, _ = io.WriteString(w, `{}]}}`)
		}),
		"cuts": gzipMember(t, func(w io.Writer) {
			_, _ = io.WriteString(w, `,"cuts":[`)
			repeatText(2_500_000, "{},")(w)
			_, _ = io.WriteString(w, `{}]}`)
		}),
	}
	for name, directory := range directories {
		data := forgedManifest(t, none, directory)
		require.Less(t, len(data), 256<<10, name)
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = manifest.Open(t.Context(), &memory{data: data}, int64(len(data))) }), uint64(bound), name)
		require.ErrorIs(t, err, manifest.ErrCorrupt, name)
	}
}

// One line of a block is an item, and one item's owners are structs of a hundred bytes for three
// bytes of text each.
func TestAForgedItemCostsBoundedMemory(t *testing.T) {
	line := func(begin string, times int, element, end string) []byte {
		return gzipMember(t, func(w io.Writer) {
			_, _ = io.WriteString(w, begin)
			repeatText(times, element)(w)
			_, _ = io.WriteString(w, end)
		})
	}
	for name, items := range map[string][]byte{
		"owners": line(`{"owners":[`, 5_000_000, "{},", "{}]}\n"), "references": line(`{"references":[`, 5_000_000, "{},", "{}]}\n"),
		"actions": line(`{"actions":[`, 5_000_000, `"",`, "\"\"]}\n"), "name": line(`{"name":"`, 60<<20, "n", "\"}\n"),
	} {
		data := forgedManifest(t, items, plainDirectory(t, items))
		var err error
		require.Less(t, limittest.Allocated(func() {
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
	items := gzipMember(t, func(w io.Writer) {
		for i := range 1_500_000 {
			_, _ = fmt.Fprintf(w, "\"ns-%d\":[\n", i)
		}
	})
	data := forgedManifest(t, items, plainDirectory(t, items))
	r, err := manifest.Open(t.Context(), &memory{data: data}, int64(len(data)))
	require.NoError(t, err)
	require.Less(t, limittest.Allocated(func() { _, err = r.Namespaces(t.Context()) }), uint64(bound))
	require.ErrorIs(t, err, manifest.ErrCorrupt)
}
