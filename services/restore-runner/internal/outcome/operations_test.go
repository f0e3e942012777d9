package outcome

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func begunCall(id string, after time.Duration) Call {
	return Call{Action: "a.io/x", Answer: &Answer{}, Begun: &operation.Operation{
		Action: "a.io/x", ID: id, Kind: "RestoreItemActionV2", Item: operation.Resource{Resource: "configmaps", Namespace: "a", Name: "x"}, Created: began.Add(after),
	}}
}

// The next holder has to wait for the operations that were begun, with the plan and without it.
func TestOperationsAreInTheRecords(t *testing.T) {
	r, bucket := newRecorder(t, io.Discard), &flaky{}
	r.Open()
	r.Call(1, begunCall("late", time.Second))
	r.Call(0, begunCall("early", 0))
	r.Call(0, begunCall("early", time.Minute)) // a Start that was repeated with its key
	inProcess := begunCall("home", time.Hour)
	inProcess.Begun.Home, inProcess.Begun.Key = &operation.Home{Instance: "i", Process: "p"}, "k"
	r.Call(0, inProcess)
	require.NoError(t, r.Flush(t.Context(), bucket))

	check := func(list []Operation, nodes ...int32) {
		t.Helper()
		require.Len(t, list, 3)
		require.Equal(t, []string{"early", "late", "home"}, []string{list[0].ID, list[1].ID, list[2].ID})
		require.Equal(t, nodes[0], list[0].Node)
		require.Equal(t, nodes[1], list[1].Node)
		require.Equal(t, nodes[2], list[2].Node)
		require.Equal(t, operation.Operation{
			Action: "a.io/x", Kind: "RestoreItemActionV2", ID: "home", Key: "k", Created: began.Add(time.Hour),
			Item: operation.Resource{Resource: "configmaps", Namespace: "a", Name: "x"}, Home: &operation.Home{Instance: "i", Process: "p"},
		}, list[2].Operation)
	}
	check(r.Operations(), 0, 1, 0)
	replayed, recalled := newRecorder(t, io.Discard), newRecorder(t, io.Discard)
	for _, file := range bucket.files {
		require.NoError(t, replayed.Replay(file, &History{}))
		require.NoError(t, recalled.LoadUnfinished(file))
	}
	check(replayed.Operations(), 0, 1, 0)
	check(recalled.Operations(), General, General, General)
}
