package itemoperation_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
)

const file = `[
 {"spec":{"backupName":"b","backupItemAction":"velero.io/csi","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"data"},
  "operationID":"two"},"status":{"phase":"InProgress","nCompleted":3,"nTotal":9,"operationUnits":"Bytes","created":"2026-01-02T00:00:00Z"}},
 {"spec":{"operationID":"one"},"status":{"phase":"Failed","error":"no","created":"2026-01-01T00:00:00Z"}}]`

func packed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestDecode(t *testing.T) {
	list, err := itemoperation.Decode(bytes.NewReader(packed(t, file)))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "one", list[0].Spec.ID, "oldest first")
	require.True(t, list[0].Done())
	require.False(t, list[1].Done())
	require.Equal(t, "data", list[1].Spec.Resource.Name)
	require.EqualValues(t, 9, list[1].Status.Total)
	for _, empty := range []string{"[]", "null", "[]\n"} {
		list, err := itemoperation.Decode(bytes.NewReader(packed(t, empty)))
		require.NoError(t, err)
		require.Empty(t, list)
	}
}

func FuzzDecode(f *testing.F) {
	whole := packed(f, file)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(packed(f, `{"spec":1}`))
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = itemoperation.Decode(bytes.NewReader(data)) }), uint64(bound))
		if err != nil {
			require.ErrorIs(t, err, itemoperation.ErrCorrupt)
		}
	})
}

func unpacked(t testing.TB, data []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// An operation that was followed here ends as it did, and not as one that nothing could ask about.
func TestAbandonCopiesTheEndThatIsKnown(t *testing.T) {
	const text = `[{"spec":{"operationID":"a"},"status":{"phase":"InProgress","error":"for now","nTotal":9,"later":2}},{"spec":{"operationID":"b"},"status":{"phase":"New"}}]`
	var out bytes.Buffer
	changed, err := itemoperation.Abandon(bytes.NewReader(packed(t, text)), &out, time.Unix(0, 0), func(o *itemoperation.Operation) error {
		o.Status.Phase, o.Status.Error, o.Status.Completed = itemoperation.PhaseCompleted, "", 9
		if o.Spec.ID == "b" {
			o.Status.Phase, o.Status.Error = itemoperation.PhaseFailed, "no space"
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, changed)
	require.JSONEq(t, `[{"spec":{"operationID":"a"},"status":{"phase":"Completed","nCompleted":9,"nTotal":9,"later":2}},`+
		`{"spec":{"operationID":"b"},"status":{"phase":"Failed","error":"no space","nCompleted":9}}]`, unpacked(t, out.Bytes()))
}

// What has ended stays as it is, fields of later versions are kept, and doing it again changes
// nothing.
func TestAbandon(t *testing.T) {
	const text = `[{"spec":{"operationID":"a","postOperationItems":[{"Group":"velero.io","Resource":"datauploads","Namespace":"velero","Name":"u"}]},"status":{"phase":"Completed"}},` +
		`{"spec":{"backupItemAction":"x/y","operationID":"b","later":1},"status":{"phase":"InProgress","nTotal":9,"later":[2]}},{"spec":{"operationID":"c"}}]` + "\n"
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var out, again bytes.Buffer
	var seen []string
	changed, err := itemoperation.Abandon(bytes.NewReader(packed(t, text)), &out, now, func(o *itemoperation.Operation) error {
		seen = append(seen, o.Spec.ID)
		require.Equal(t, o.Spec.ID != "a", o.Abandoned())
		return nil
	})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []string{"a", "b", "c"}, seen)
	list, err := itemoperation.Decode(bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, "u", list[0].Spec.After[0].Name)
	require.Equal(t, itemoperation.PhaseCompleted, list[0].Status.Phase)
	for _, o := range list[1:] {
		require.Equal(t, itemoperation.PhaseFailed, o.Status.Phase)
		require.Equal(t, itemoperation.Abandoned, o.Status.Error)
		require.True(t, o.Status.Updated.Time.Equal(now.Truncate(time.Second)))
	}
	require.Contains(t, unpacked(t, out.Bytes()), `"later":1`)
	require.Contains(t, unpacked(t, out.Bytes()), `"later":[2]`)
	changed, err = itemoperation.Abandon(bytes.NewReader(out.Bytes()), &again, now.Add(time.Hour), func(o *itemoperation.Operation) error {
		require.Equal(t, o.Spec.ID != "a", o.Abandoned(), "known as what was ended so")
		return nil
	})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, unpacked(t, out.Bytes()), unpacked(t, again.Bytes()))

	for in, want := range map[string]string{"null": "[]\n", "[]": "[]\n", `[{"spec":{},"status":{"phase":"Failed"}}]`: `[{"spec":{},"status":{"phase":"Failed"}}]` + "\n"} {
		out.Reset()
		changed, err := itemoperation.Abandon(bytes.NewReader(packed(t, in)), &out, now, func(*itemoperation.Operation) error { return nil })
		require.NoError(t, err)
		require.False(t, changed)
		require.Equal(t, want, unpacked(t, out.Bytes()))
	}
	_, err = itemoperation.Abandon(bytes.NewReader(packed(t, `[{"spec":1}]`)), io.Discard, now, nil)
	require.ErrorIs(t, err, itemoperation.ErrCorrupt)
	boom := errors.New("boom")
	_, err = itemoperation.Abandon(bytes.NewReader(packed(t, text)), io.Discard, now, func(*itemoperation.Operation) error { return boom })
	require.ErrorIs(t, err, boom)
	require.NotErrorIs(t, err, itemoperation.ErrCorrupt)
}
