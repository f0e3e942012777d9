package operation_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

// The file has Velero 1.18's fields, and Decode reads it.
func TestEncodeFile(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	ops := []operation.Operation{
		{Action: "x/y", ID: "op-1", Item: operation.Resource{Group: "g", Resource: "rs", Namespace: "n", Name: "o"}, Created: at,
			PostOperation: []operation.Resource{{Resource: "pods", Namespace: "n", Name: "p"}}},
		{Action: "x/z", ID: "op-2", Item: operation.Resource{Resource: "nodes", Name: "o"}, Created: at.Add(time.Minute)},
	}
	states := []operation.State{
		{Phase: operation.Failed, Error: "no space", EndTime: at.Add(time.Hour), Progress: operation.Progress{Completed: 1, Total: 2, Units: "Bytes", Description: "d", Started: &at}},
		{Phase: operation.InProgress},
	}
	var out bytes.Buffer
	require.NoError(t, operation.EncodeFile(&out, operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}, ops, states))
	require.JSONEq(t, `[{"spec":{"backupName":"b","backupUID":"u","backupItemAction":"x/y","operationID":"op-1",
		"resourceIdentifier":{"Group":"g","Resource":"rs","Namespace":"n","Name":"o"},"postOperationItems":[{"Group":"","Resource":"pods","Namespace":"n","Name":"p"}]},
		"status":{"phase":"Failed","error":"no space","nCompleted":1,"nTotal":2,"operationUnits":"Bytes","description":"d",
		"created":"2026-01-02T02:04:05Z","started":"2026-01-02T02:04:05Z","updated":"2026-01-02T03:04:05Z"}},
		{"spec":{"backupName":"b","backupUID":"u","backupItemAction":"x/z","operationID":"op-2","resourceIdentifier":{"Group":"","Resource":"nodes","Namespace":"","Name":"o"},"postOperationItems":null},
		"status":{"phase":"InProgress","created":"2026-01-02T02:05:05Z"}}]`, out.String())
	list, err := itemoperation.Decode(bytes.NewReader(limittest.Packed(t, strings.NewReader(out.String()))))
	require.NoError(t, err)
	require.Equal(t, "x/y", list[0].Spec.Action())
	require.True(t, list[0].Done())
	require.False(t, list[1].Done())

	out.Reset()
	require.NoError(t, operation.EncodeFile(&out, operation.Job{Kind: operation.KindRestore, Name: "r", UID: "u"}, ops[1:], states[1:]))
	require.Contains(t, out.String(), `"restoreName":"r","restoreUID":"u","restoreItemAction":"x/z"`)
	out.Reset()
	require.NoError(t, operation.EncodeFile(&out, operation.Job{}, nil, nil))
	require.Equal(t, "[]\n", out.String())
}
