package outcome

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/jsonlimit/limittest"
)

// bound is what replaying any file of records may allocate, in bytes.
const bound = 128 << 20

// A record of 100 KiB in the bucket unpacks to one line of 32 MiB, and that to maps of a gigabyte: whoever takes the restore over dies of it.
func TestAForgedRecordCostsBoundedMemory(t *testing.T) {
	for name, text := range map[string]io.Reader{
		"references": limittest.List(`{"owes":{"uid":"u","later":[`, "{}", "]}}\n", 7<<20), "now": limittest.List(`{"owes":{"uid":"u","now":[`, `{"":0}`, "]}}\n", 7<<20),
		"log": limittest.List(`{"log":[`, "{}", "]}\n", 7<<20), "message": limittest.List(`{"log":[{"m":"`, "x", "\"}]}\n", 64<<20),
		"line": limittest.List("{}", " ", "\n", 64<<20),
	} {
		file := limittest.Packed(t, io.MultiReader(strings.NewReader("{\"formatVersion\":1}\n"), text))
		require.Less(t, len(file), 1<<20, name)
		r, history := recorder(t, io.Discard), &History{}
		var head Head
		var looked, err error
		require.Less(t, limittest.Allocated(func() { looked, err = head.Look(file), r.Replay(file, history) }), uint64(bound), name)
		require.ErrorIs(t, looked, ErrFormat, name)
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

// A restore over a cluster that refuses most objects has a warning for each, and all of them were kept in memory until the end.
func TestAMillionWarningsAreNotHeldInMemory(t *testing.T) {
	const warnings = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r, bucket := recorder(t, io.Discard), &flaky{}
	r.Open()
	before := heap()
	for i := range warnings {
		r.Warn(int32(i%4), fmt.Sprintf("exists already, and is not as in the backup: %0100d", i))
		if i%1000 == 0 {
			require.NoError(t, r.Flush(t.Context(), bucket))
			bucket.files = nil
		}
	}
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(6<<20))
	var out bytes.Buffer
	require.NoError(t, r.WriteResults(&out))
	require.Equal(t, warnings, bytes.Count(out.Bytes(), []byte("exists already")))
	var written joblog.Results
	require.NoError(t, json.Unmarshal(out.Bytes(), &written))
	require.Len(t, written.Warnings.Namespaces["z"], warnings/2)
	require.Contains(t, written.Warnings.Namespaces["z"][1], "deployments.apps z/d: ", "in the order they came")
	require.NoError(t, r.Close())
}
