package finalize_test

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// The benchmark's backup is of 50,000 objects of 2 KB, which compress to about a third, in parts as
// four workers make them.
const benchParts, benchItems, benchBytes = 50, 1000, 1500

// BenchmarkFinalize takes a backup of 50,000 objects in a directory from its composition to its
// end, and reports what each step takes.
func BenchmarkFinalize(b *testing.B) {
	dir := b.TempDir()
	parts := make([]sealedPart, benchParts)
	for p := range parts {
		parts[p] = sealPart(b, dir, p, benchItems, benchBytes)
	}
	took, rounds := map[string]time.Duration{}, 0
	var cpu time.Duration
	for ; b.Loop(); rounds++ {
		b.StopTimer()
		store, err := filestore.Open(b.TempDir())
		require.NoError(b, err)
		c := storeCollected(b, store, parts)
		s := newState(b, store, &bytes.Buffer{})
		s.Collect = func(context.Context) (checkpoint.Composition, error) { return c, nil }
		before := cpuTime(b)
		b.StartTimer()
		for _, step := range append(finalize.Backup(), finalize.End()...) {
			began := time.Now()
			require.NoError(b, s.Run(b.Context(), []finalize.Step{step}))
			took[step.Name] += time.Since(began)
		}
		b.StopTimer()
		cpu += cpuTime(b) - before
		require.Equal(b, benchParts*benchItems, s.Contents.Items)
		require.NoError(b, store.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Microseconds())/1000/float64(rounds), "cpu-ms")
	for name, d := range took {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(rounds), strings.ReplaceAll(name, " ", "-")+"-ms")
	}
}

// cpuTime is what the process has used of its processors: unlike the time of day it hardly depends
// on what else the machine does.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
