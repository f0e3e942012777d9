package leftover_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func packed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

func text(t testing.TB, store *memstore.Store, key string) string {
	t.Helper()
	data, ok := store.Bytes(key)
	require.True(t, ok, key)
	r, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(out)
}

func results(t testing.TB, store *memstore.Store) (r joblog.Results) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text(t, store, layout.BackupResults("b"))), &r))
	return r
}

var owner = operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}

func job(t testing.TB, store *memstore.Store) *leftover.Job {
	t.Helper()
	return &leftover.Job{
		Store: store, Dir: t.TempDir(), Owner: owner, Operations: layout.BackupItemOperations("b"), Results: layout.BackupResults("b"), Log: layout.BackupLog("b"),
		Field: "backup", Value: "velero/b", Source: "holdfast/test", Message: joblog.ResultMessage,
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Confirm: func(context.Context) error { return nil },
	}
}

const mixed = `[
 {"spec":{"backupItemAction":"velero.io/csi-pvc-backupper","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"moving"},"operationID":"du-1",
  "postOperationItems":[{"Group":"velero.io","Resource":"datauploads","Namespace":"velero","Name":"u1"}]},"status":{"phase":"InProgress"}},
 {"spec":{"backupItemAction":"velero.io/csi-pvc-backupper","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"moved"},"operationID":"du-2",
  "postOperationItems":[{"Group":"velero.io","Resource":"datauploads","Namespace":"velero","Name":"u2"}]},"status":{"phase":"Completed"}},
 {"spec":{"backupItemAction":"velero.io/csi-volumesnapshot-backupper","resourceIdentifier":{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"n","Name":"s"},"operationID":"vs-1",
  "postOperationItems":[{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"n","Name":"s"}]},"status":{"phase":"Completed"}},
 {"spec":{"backupItemAction":"x/y","resourceIdentifier":{"Group":"apps","Resource":"deployments","Namespace":"n","Name":"d"},"operationID":"failed"},"status":{"phase":"Failed","error":"disk on fire"}},
 {"spec":{"backupItemAction":"x/y","resourceIdentifier":{"Group":"apps","Resource":"deployments","Namespace":"n","Name":"d"},"operationID":"done"},"status":{"phase":"Completed"}}]`

// An operation that another server began is neither in the results nor in the log when nothing can
// ask about it any more.
func TestOperationsOfAnotherServerEndInAllFiles(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
	store.Set(layout.BackupResults("b"), packed(t, `{"warnings":{"namespaces":{"n":["old warning"]}},"errors":{"velero":["old error"]}}`))
	store.Set(layout.BackupLog("b"), packed(t, "the first line\n"))
	var before joblog.Results
	for attempt := range 2 { // the second one after the first was interrupted before the phase was written
		j := job(t, store)
		o, err := j.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, o.Errors)
		require.Equal(t, 1, o.Counted, "the other server counted what it saw fail")
		require.Equal(t, 1, o.Warnings)
		require.Equal(t, []int{3, 2, 1}, []int{o.Completed, o.Failed, o.Snapshots})
		require.NoError(t, j.Publish(t.Context(), o))
		require.NoError(t, o.Close())
		left, err := os.ReadDir(j.Dir)
		require.NoError(t, err)
		require.Empty(t, left)

		got := results(t, store)
		require.Equal(t, []string{"old error"}, got.Errors.Velero)
		require.Equal(t, []string{
			` resource: /persistentvolumeclaims name: /moving message: /operation "du-1" of action "velero.io/csi-pvc-backupper" did not end error: /` + itemoperation.Abandoned,
			` resource: /persistentvolumeclaims name: /moved message: /operation "du-2" of action "velero.io/csi-pvc-backupper": datauploads.velero.io velero/u2 is not read again after its end` +
				` error: /the backup does not tell where the data is that was moved, so it cannot be restored`,
			` resource: /deployments.apps name: /d message: /operation "failed" of action "x/y" failed error: /disk on fire`,
		}, got.Errors.Namespaces["n"])
		require.Len(t, got.Warnings.Namespaces["n"], 2)
		if attempt == 1 {
			require.Equal(t, before, got, "nothing comes twice")
		}
		before = got
	}
	log := text(t, store, layout.BackupLog("b"))
	require.True(t, strings.HasPrefix(log, "the first line\n"), log)
	require.Contains(t, log, `level=error msg="operation \"du-1\" of action \"velero.io/csi-pvc-backupper\" did not end" backup=velero/b error="`+itemoperation.Abandoned+`" logSource=holdfast/test name=moving`)
	data, _ := store.Bytes(layout.BackupItemOperations("b"))
	list, err := itemoperation.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	require.Len(t, list, 5)
	for _, o := range list {
		require.True(t, o.Done(), o.Spec.ID)
	}
}

// Operations that were followed here ended as they did, also after an attempt that was interrupted.
func TestOperationsThatWereFollowedHere(t *testing.T) {
	const text = `[{"spec":{"restoreItemAction":"x/y","operationID":"fine"},"status":{"phase":"InProgress"}},
		{"spec":{"restoreItemAction":"x/y","operationID":"broken","resourceIdentifier":{"Resource":"pods","Namespace":"n","Name":"p"}},"status":{"phase":"New"}},
		{"spec":{"restoreItemAction":"x/z","operationID":"fine"},"status":{"phase":"InProgress"}}]`
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), packed(t, text))
	list := operation.List{Job: owner, Inherited: true, Operations: []operation.Operation{
		{Action: "x/y", ID: "fine"}, {Action: "x/y", ID: "broken"}, {Action: "x/z", ID: "fine", End: &operation.End{Error: itemoperation.Abandoned}},
	}}
	_, err := operation.Seal(t.Context(), store, list)
	require.NoError(t, err)
	log, err := operation.Open(t.Context(), store, owner)
	require.NoError(t, err)
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	require.NoError(t, log.Append(t.Context(),
		operation.Event{Operation: 0, Time: at, End: &operation.End{Progress: operation.Progress{Completed: 4, Total: 4}}},
		operation.Event{Operation: 1, Time: at, End: &operation.End{Error: "no space"}}))
	for range 2 {
		j := job(t, store)
		o, err := j.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 2}, []int{o.Completed, o.Failed, o.Errors})
		require.Zero(t, o.Counted, "what failed here is counted here alone")
		require.NoError(t, j.Publish(t.Context(), o))
		require.NoError(t, o.Close())
		require.Equal(t, []string{` resource: /pods name: /p message: /operation "broken" of action "x/y" failed error: /no space`}, results(t, store).Errors.Namespaces["n"])
		data, _ := store.Bytes(layout.BackupItemOperations("b"))
		got, err := itemoperation.Decode(bytes.NewReader(data))
		require.NoError(t, err)
		ends := map[string]string{}
		for _, o := range got {
			ends[o.Spec.Action()+" "+o.Spec.ID] = o.Status.Phase + " " + o.Status.Error
			require.NotNil(t, o.Status.Updated)
		}
		require.Equal(t, map[string]string{"x/y fine": "Completed ", "x/y broken": "Failed no space", "x/z fine": "Failed " + itemoperation.Abandoned}, ends)
	}
	store.Set(layout.BackupOperations("b", "u")+"list", []byte("junk"))
	o, err := job(t, store).Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, o.Errors, "that the records are damaged is one more")
}

func TestAJobWithoutOperationsGetsNoFiles(t *testing.T) {
	for name, operations := range map[string][]byte{"no file": nil, "empty": packed(t, "[]\n"), "null": packed(t, "null\n")} {
		store := memstore.New()
		if operations != nil {
			store.Set(layout.BackupItemOperations("b"), operations)
		}
		keys := store.Keys()
		j := job(t, store)
		o, err := j.Look(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, j.Publish(t.Context(), o))
		require.Equal(t, leftover.Outcome{}, *o)
		require.Equal(t, keys, store.Keys())
		require.Zero(t, store.Calls(memstore.OpPut))
	}
}

// Files that are not there are made; what is damaged stays, and the rest is said nevertheless.
func TestDamagedFiles(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), []byte("junk"))
	j := job(t, store)
	j.Notes = []joblog.Entry{{Level: joblog.Warning, Message: "a note"}}
	o, err := j.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{o.Errors, o.Warnings})
	require.NoError(t, j.Publish(t.Context(), o))
	require.Contains(t, results(t, store).Errors.Velero[0], "the operations of the job cannot be read")
	require.Equal(t, []string{" message: /a note"}, results(t, store).Warnings.Velero)
	require.Contains(t, text(t, store, layout.BackupLog("b")), "a note")
	data, _ := store.Bytes(layout.BackupItemOperations("b"))
	require.Equal(t, "junk", string(data))

	store.Set(layout.BackupResults("b"), []byte("junk"))
	store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
	o, err = j.Look(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, j.Publish(t.Context(), o), leftover.ErrLeft)
	data, _ = store.Bytes(layout.BackupResults("b"))
	require.Equal(t, "junk", string(data))
	require.Contains(t, text(t, store, layout.BackupLog("b")), "du-1")
}

// A bucket that is away is no damage, and a process that lost the job writes nothing.
func TestNothingIsWrittenWithoutTheClaim(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
	j := job(t, store)
	o, err := j.Look(t.Context())
	require.NoError(t, err)
	lost := errors.New("the claim is lost")
	j.Confirm = func(context.Context) error { return lost }
	require.ErrorIs(t, j.Publish(t.Context(), o), lost)
	require.Zero(t, store.Calls(memstore.OpPut))
	require.NoError(t, o.Close())
	away := errors.New("bucket is away")
	store.Inject(func(memstore.Op, string) error { return away })
	_, err = j.Look(t.Context())
	require.ErrorIs(t, err, away)
}

// A hostile file of operations has millions of them in some kilobytes.
func TestEndlessOperationsAreCountedNotListed(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), packed(t, "["+strings.Repeat(`{},`, 50_000)+"{}]"))
	j := job(t, store)
	o, err := j.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, 50_001, o.Failed)
	require.NoError(t, j.Publish(t.Context(), o))
	require.NoError(t, o.Close())
	got := results(t, store)
	require.LessOrEqual(t, got.Errors.Count(), 20_001)
	require.Contains(t, got.Errors.Velero[0], "30001 more errors and warnings")
}

// A hostile file of operations has long texts in some kilobytes. Each of them is in an entry, its
// line of the results and its line of the log at once: 200 MiB of them take several times that.
func TestLongTextsOfOperationsAreCountedNotListed(t *testing.T) {
	store := memstore.New()
	one := `{"spec":{"operationID":"` + strings.Repeat("x", 200<<10) + `","resourceIdentifier":{"Namespace":"` + strings.Repeat("n", 200<<10) + `"}}}`
	store.Set(layout.BackupItemOperations("b"), packed(t, "["+strings.Repeat(one+",", 99)+one+"]"))
	j := job(t, store)
	o, err := j.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, o.Failed)
	require.NoError(t, j.Publish(t.Context(), o))
	require.NoError(t, o.Close())
	got := results(t, store)
	require.Less(t, len(text(t, store, layout.BackupResults("b"))), 6<<20)
	require.Contains(t, got.Errors.Velero[0], "more errors and warnings")
	require.NotEmpty(t, got.Errors.Namespaces)
}

// What is said of an operation that its job was ended over is the same after an attempt that was
// interrupted.
func TestOperationsEndWithTheirJob(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
	for range 2 {
		j := job(t, store)
		j.Stop = "cancelled by ann"
		o, err := j.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{3, 2, 3, 1}, []int{o.Completed, o.Failed, o.Errors, o.Counted})
		require.NoError(t, j.Publish(t.Context(), o))
		require.NoError(t, o.Close())
		data, _ := store.Bytes(layout.BackupItemOperations("b"))
		list, err := itemoperation.Decode(bytes.NewReader(data))
		require.NoError(t, err)
		i := slices.IndexFunc(list, func(op itemoperation.Operation) bool { return op.Spec.ID == "du-1" })
		require.Equal(t, itemoperation.PhaseFailed, list[i].Status.Phase)
		require.Equal(t, "cancelled by ann; the operation did not end before its job and may go on", list[i].Status.Error)
		require.Equal(t, j.Now, list[i].Status.Updated.UTC())
		require.Len(t, results(t, store).Errors.Namespaces["n"], 3)
		require.Contains(t, results(t, store).Errors.Namespaces["n"][0], list[i].Status.Error)
	}
	status := velerov1.BackupStatus{Errors: 1, Warnings: 1, BackupItemOperationsAttempted: 9}
	(&leftover.Outcome{Errors: 3, Counted: 2, Warnings: 1, Completed: 2, Failed: 1}).CountBackup(&status)
	require.Equal(t, []int{3, 2, 9, 2, 1}, []int{status.Errors, status.Warnings, status.BackupItemOperationsAttempted, status.BackupItemOperationsCompleted, status.BackupItemOperationsFailed})
}
