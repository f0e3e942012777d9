package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

// bound is what replaying any file of records may allocate, in bytes.
const bound = 128 << 20

// A record of 100 KiB in the bucket unpacks to one line of 32 MiB, and that to maps of a gigabyte:
// a successor runs out of memory.
func TestAForgedRecordCostsBoundedMemory(t *testing.T) {
	for name, text := range map[string]io.Reader{
		"references": limittest.List(`{"owes":{"uid":"u","later":[`, "{}", "]}}\n", 7<<20),
		"log":        limittest.List(`{"log":[`, "{}", "]}\n", 7<<20), "message": limittest.List(`{"log":[{"m":"`, "x", "\"}]}\n", 64<<20),
		"line": limittest.List("{}", " ", "\n", 64<<20),
	} {
		file := limittest.Packed(t, io.MultiReader(strings.NewReader("{\"formatVersion\":1}\n"), text))
		require.Less(t, len(file), 1<<20, name)
		r, history := newRecorder(t, io.Discard), &History{}
		var head Head
		var looked, err error
		require.Less(t, limittest.Allocated(func() { looked, err = head.ReadHead(file), r.Replay(file, history) }), uint64(bound), name)
		require.ErrorIs(t, looked, ErrFormat, name)
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

// A restore over a cluster that refuses most objects has a warning for each, and all of them were
// kept in memory until the end.
func TestAMillionWarningsAreNotHeldInMemory(t *testing.T) {
	const warnings = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r, bucket := newRecorder(t, io.Discard), &flaky{}
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
	require.NoError(t, r.Files().WriteResults(&out))
	require.Equal(t, warnings, bytes.Count(out.Bytes(), []byte("exists already")))
	var written joblog.Results
	require.NoError(t, json.Unmarshal(out.Bytes(), &written))
	require.Len(t, written.Warnings.Namespaces["z"], warnings/2)
	require.Contains(t, written.Warnings.Namespaces["z"][1], "deployments.apps z/d: ", "in the order they came")
	require.NoError(t, r.Close())
}

// An API server repeats a refused value in its error: one of some megabytes made a line that no
// later holder of the restore could read, whose records were all lost with it.
func TestLongMessagesCanBeReplayed(t *testing.T) {
	for name, long := range map[string]string{"escaped": strings.Repeat("<\x01", 2<<20), "many bytes to a character": strings.Repeat("\u20ac", 3<<20)} {
		t.Run(name, func(t *testing.T) {
			r, bucket := newRecorder(t, io.Discard), &flaky{}
			r.Open()
			r.Error(General, "spec: Invalid value: "+long)
			r.Note(&joblog.Entry{Level: joblog.Info, Message: long[:4<<20-100]})
			require.NoError(t, r.Flush(t.Context(), bucket))
			require.Len(t, bucket.files, 1)
			var messages []string
			require.NoError(t, EachRecord(bucket.files[0], func(rec *Record) {
				for _, line := range rec.Log {
					messages = append(messages, line.Message)
				}
			}))
			require.Len(t, messages, 2)
			require.True(t, strings.HasPrefix(messages[0], "spec: Invalid value: "+string([]rune(long)[:1000])))
			require.Contains(t, messages[0], " more bytes)")
			for _, m := range messages {
				require.True(t, utf8.ValidString(m))
				require.LessOrEqual(t, len(m), maxMessage+50)
			}
			require.NoError(t, r.Close())
		})
	}
}

// So did an object with more owner references to be dropped, a warning each, than fit into a line.
func TestManyMessagesOfOneObjectCanBeReplayed(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	r.Open()
	e := r.Begin(0)
	e.Info("first")
	mark := e.Mark()
	for range 2 {
		e.Rewind(mark)
		for range 100_000 {
			e.Warn(strings.Repeat("<", 100))
		}
	}
	e.Fail(errors.New("refused"))
	e.Commit()
	require.NoError(t, r.Flush(t.Context(), bucket))
	require.Len(t, bucket.files, 1)
	var last *Record
	require.NoError(t, EachRecord(bucket.files[0], func(rec *Record) { last = rec }))
	require.Greater(t, len(last.Log), 1000)
	require.Equal(t, "refused", last.Log[len(last.Log)-1].Message)
	require.Contains(t, last.Log[len(last.Log)-2].Message, "left out from here")
	require.Equal(t, 1, r.Counts().Errors)
	require.NoError(t, r.Close())
}
