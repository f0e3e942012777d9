package extsort_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/extsort"
)

const benchRecords = 500_000

// benchKeys are keys as those of a manifest, in the order in which lists come.
func benchKeys() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([][]byte, benchRecords)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "resources/configmaps/namespaces/ns-%03d/item-%07d.json", rng.IntN(200), i)
	}
	return keys
}

// BenchmarkSort sorts half a million records of 150 bytes: with runs in files, and all in memory.
func BenchmarkSort(b *testing.B) {
	keys, value := benchKeys(), bytes.Repeat([]byte("v"), 100)
	b.Run("extsort", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := sortApart(b.TempDir(), keys, value); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			records := make([]record, 0, len(keys))
			for _, key := range keys {
				records = append(records, record{string(key), string(value)})
			}
			slices.SortStableFunc(records, func(x, y record) int { return cmp.Compare(x.key, y.key) })
		}
	})
}

func sortApart(dir string, keys [][]byte, value []byte) error {
	s := extsort.New(extsort.Config{Dir: dir})
	for _, key := range keys {
		if err := s.Add(key, value); err != nil {
			return err
		}
	}
	sorted, err := s.Sort()
	if err != nil {
		return err
	}
	for {
		if _, _, err := sorted.Next(); errors.Is(err, io.EOF) {
			return sorted.Close()
		} else if err != nil {
			return err
		}
	}
}
