package outcome

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
