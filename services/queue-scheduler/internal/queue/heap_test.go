package queue_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// heapInUse is what the heap holds after a collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// A queue of 600 drains while 600 ended backups are beside it: the heap does not grow, so nothing
// that outlives a pass points into what the pass has read.
func TestTheHeapStaysWhileALongQueueDrains(t *testing.T) {
	const jobs = 600
	server := &store{}
	for i := range 2 * jobs {
		b := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b%04d", i), i)}
		b.Spec.IncludedNamespaces = []string{fmt.Sprintf("n%d", i)}
		b.Annotations = map[string]string{"note": strings.Repeat("x", 1000), "holdfast.io/queue-sequence": fmt.Sprint(i + 1)}
		b.Status.Phase = velerov1.BackupPhaseCompleted
		if i >= jobs {
			b.Status.Phase = velerov1.BackupPhaseQueued
		}
		require.NoError(t, server.Create(t.Context(), b))
	}
	s := newQueue(server, &ledger.Limits{Backups: 1})
	require.NoError(t, s.PassAndPlaceOne(t.Context()))
	before := heapInUse()
	for i := range jobs {
		b, ok := server.objects[jobs+i].DeepCopyObject().(*velerov1.Backup)
		require.True(t, ok)
		require.Equal(t, velerov1.BackupPhaseReadyToStart, b.Status.Phase)
		b.Status.Phase = velerov1.BackupPhaseCompleted
		require.NoError(t, server.Update(t.Context(), b))
		require.NoError(t, s.PassAndPlaceOne(t.Context()))
	}
	after := heapInUse()
	require.Less(t, float64(after), 1.2*float64(before), "%d bytes before, %d after", before, after)
	runtime.KeepAlive(server)
	runtime.KeepAlive(s)
}
