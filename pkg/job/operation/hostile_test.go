package operation_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

const dir = "backups/b/parts/u1/operations/"

// measureAlive is how many bytes more are alive after do than before, while its result is.
func measureAlive[T any](do func() T) (kept T, bytes uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept = do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return kept, max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
}

// A list of 64 MiB was read as a whole and decoded into up to 128 MiB: twice what a runner may take.
func TestAForgedListCostsBoundedMemory(t *testing.T) {
	const head = `{"formatVersion":1,"job":{"kind":"Backup","name":"b","uid":"u1"},"operations":[`
	for name, element := range map[string]string{
		"empty": "{}", "nulls": "null", "ends": `{"end":{}}`, "items": `{"postOperation":[{},{},{},{},{},{},{},{}]}`,
		"names": `{"action":"vendor.io/a","id":"an operation of some length","item":{"resource":"pods","namespace":"n","name":"p"}}`,
		"texts": `{"id":"` + strings.Repeat("x", 400<<10) + `"}`,
		"large": `{"id":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep":  `{"postOperation":[` + strings.Repeat("{},", 150<<10) + `{}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := sealedLog(t, "1")
			store.Set(dir+"list", limittest.Text(t, limittest.List(head, element, "]}", 60<<20)))
			var err error
			allocated := limittest.Allocated(func() { _, err = operation.Open(t.Context(), store, job) })
			require.ErrorIs(t, err, operation.ErrDamaged)
			require.Less(t, allocated, uint64(160<<20), "of which little is alive at a time")
		})
	}
}

// Records may not say more than is kept of them.
func TestForgedRecordsCostBoundedMemory(t *testing.T) {
	store, _ := sealedLog(t, strings.Split(strings.Repeat("x", 1000), "")...)
	const forged = 60
	text := strings.Repeat("y", 100<<10)
	for i := range forged {
		store.Set(fmt.Sprintf("%srecord-%010d", dir, i+1), fmt.Appendf(nil, `{"formatVersion":1,"uid":"u1","seq":%d,"events":[`+
			`{"operation":%[2]d,"request":{"reason":"%[3]s"}},{"operation":%[2]d,"cancel":{"reason":"%[3]s"}},{"operation":%[2]d,"answer":{"error":"%[3]s"}},`+
			`{"operation":%[2]d,"end":{"error":"%[3]s","units":"%[3]s","description":"%[3]s"}}]}`, i+1, i, text))
	}
	log, kept := measureAlive(func() *operation.Log { return openLog(t, store) })
	require.Less(t, kept, uint64(2<<20))
	completed, failed := log.Count()
	require.Equal(t, []int{0, forged}, []int{completed, failed})
	require.Equal(t, strings.Repeat("y", 2<<10)+"...", log.States()[forged-1].Error)

	store.Set(dir+"record-0000000001", limittest.Text(t, limittest.List(`{"formatVersion":1,"uid":"u1","seq":1,"events":[`, "{}", "]}", 60<<20)))
	var err error
	require.Less(t, limittest.Allocated(func() { _, err = operation.Open(t.Context(), store, job) }), uint64(48<<20))
	require.ErrorIs(t, err, operation.ErrDamaged)
}
