package history_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
)

// liveMemory returns the bytes in use.
func liveMemory() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A successor keeps about 30 bytes, and no text, of a list that is done.
func TestListsThatAreDoneAreRememberedShortly(t *testing.T) {
	const n = 100_000
	base := liveMemory()
	units := history.NewUnits()
	open := 0
	for i := range n {
		units.Cover(&checkpoint.Range{Unit: fmt.Sprintf("deployments.apps/a-namespace-with-a-name-of-some-length-%05d", i), Done: i != 7})
	}
	require.Less(t, max(liveMemory(), base)-base, uint64(64*n))
	for i := range n {
		id := fmt.Sprintf("deployments.apps/a-namespace-with-a-name-of-some-length-%05d", i)
		if _, ok := units.At(id); ok {
			open++
		}
		require.Equal(t, i != 7, units.Done(id))
	}
	require.Equal(t, 1, open)
}

func TestAUnitStandsAtItsLastRange(t *testing.T) {
	h := history.New()
	h.Add("r1", &checkpoint.Record{Ranges: []checkpoint.Range{{Unit: "pods", Last: "a/x", Items: 3}}})
	h.Add("r2", &checkpoint.Record{Ranges: []checkpoint.Range{{Unit: "pods", After: "a/x", Last: "a/y", Items: 2}}})
	at, ok := h.Units.At("pods")
	require.True(t, ok)
	require.Equal(t, "a/y", at.Last)
	require.Equal(t, 5, at.Total)
	h.Add("r3", &checkpoint.Record{Ranges: []checkpoint.Range{{Unit: "pods", Done: true}}})
	_, ok = h.Units.At("pods")
	require.False(t, ok)
	require.True(t, h.Units.Done("pods"))
}

// A call that was announced and not sent after all may be made.
func TestCallsThatAreNotMadeAgain(t *testing.T) {
	call := func(name string) checkpoint.Call {
		return checkpoint.Call{Action: "a.io/x", Object: checkpoint.Object{Kind: "Pod", Namespace: "a", Name: name}}
	}
	h := history.New()
	h.Add("r1", &checkpoint.Record{Intents: []checkpoint.Call{call("unknown"), call("answered"), call("unsent")}})
	h.Add("r2", &checkpoint.Record{Outcomes: []checkpoint.Outcome{{Call: call("answered")}, {Call: call("unsent"), NotSent: true}}})
	for name, want := range map[string]struct {
		record string
		begun  bool
	}{"unknown": {"", true}, "answered": {"r2", true}, "unsent": {"", false}, "never": {"", false}} {
		c := call(name)
		record, begun := h.Calls.Begun(&c)
		require.Equal(t, want.begun, begun, name)
		require.Equal(t, want.record, record, name)
	}
}
