package itemoperation_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

const file = `[
 {"spec":{"backupName":"b","backupItemAction":"velero.io/csi","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"data"},
  "operationID":"two"},"status":{"phase":"InProgress","nCompleted":3,"nTotal":9,"operationUnits":"Bytes","created":"2026-01-02T00:00:00Z"}},
 {"spec":{"operationID":"one"},"status":{"phase":"Failed","error":"no","created":"2026-01-01T00:00:00Z"}}]`

func TestDecode(t *testing.T) {
	list, err := itemoperation.Decode(bytes.NewReader(limittest.PackedText(t, file)))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "one", list[0].Spec.ID, "oldest first")
	require.True(t, list[0].Done())
	require.False(t, list[1].Done())
	require.Equal(t, "data", list[1].Spec.Resource.Name)
	require.EqualValues(t, 9, list[1].Status.Total)
	for _, empty := range []string{"[]", "null", "[]\n"} {
		list, err := itemoperation.Decode(bytes.NewReader(limittest.PackedText(t, empty)))
		require.NoError(t, err)
		require.Empty(t, list)
	}
}

func FuzzDecode(f *testing.F) {
	whole := limittest.PackedText(f, file)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(limittest.PackedText(f, `{"spec":1}`))
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = itemoperation.Decode(bytes.NewReader(data)) }), uint64(bound))
		if err != nil {
			require.ErrorIs(t, err, itemoperation.ErrCorrupt)
		}
	})
}
