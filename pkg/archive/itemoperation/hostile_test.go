package itemoperation_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

// bound is what reading any file of operations may allocate, in bytes.
const bound = 192 << 20

// A file of 90 KiB unpacks to a list of empty objects, each of which becomes a struct of 300 bytes:
// 26 GiB in a reader of a job's operations.
func TestAForgedFileOfOperationsCostsBoundedMemory(t *testing.T) {
	for name, element := range map[string]string{"empty": "{}", "nulls": "null", "texts": `{"spec":{"operationID":"an operation"}}`} {
		file := limittest.Packed(t, limittest.List("[", element, "]", 64<<20))
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = itemoperation.Decode(bytes.NewReader(file)) }), uint64(3*bound), name)
		require.ErrorIs(t, err, itemoperation.ErrCorrupt, name)
	}
	file := limittest.Packed(t, limittest.List(`[{"status":{"error":"`, "x", `"}}]`, 64<<20))
	var err error
	require.Less(t, limittest.Allocated(func() { _, err = itemoperation.Decode(bytes.NewReader(file)) }), uint64(bound))
	require.ErrorIs(t, err, itemoperation.ErrCorrupt)
}

// A large job has an operation for each volume.
func TestTenThousandOperationsAreRead(t *testing.T) {
	t.Parallel()
	one := `{"spec":{"backupName":"b","backupItemAction":"velero.io/csi","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"data"},` +
		`"operationID":"two"},"status":{"phase":"InProgress","nCompleted":3,"nTotal":9,"operationUnits":"Bytes","created":"2026-01-02T00:00:00Z"}}`
	list, err := itemoperation.Decode(bytes.NewReader(limittest.Packed(t, limittest.List("[", one, "]", 10_100*len(one)))))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list), 10_000)
}
