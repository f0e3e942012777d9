package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/server"
)

const file = `[
 {"spec":{"backupName":"b","backupItemAction":"velero.io/csi","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"data"},
  "operationID":"two"},"status":{"phase":"InProgress","nCompleted":3,"nTotal":9,"operationUnits":"Bytes","created":"2026-01-02T00:00:00Z"}},
 {"spec":{"operationID":"one"},"status":{"phase":"Failed","error":"no","created":"2026-01-01T00:00:00Z"}}]`

// mainStores has one location, "main".
type mainStores struct{ objectstore.Store }

func (s mainStores) OpenName(_ context.Context, name string) (objectstore.Store, error) {
	if name != "main" {
		return nil, errgrpc.ErrNotFound
	}
	return s.Store, nil
}

func newSource(t *testing.T, objects ...client.Object) (*server.Source, objectstore.Store) {
	t.Helper()
	store := memstore.New()
	return &server.Source{
		Reader: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), Namespace: "velero", Stores: mainStores{store},
	}, store
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID(name + "-uid")}
}

func TestOperationsOfAJob(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: objectMeta("b"), Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	fresh := &velerov1.Backup{ObjectMeta: objectMeta("fresh")}
	r := &velerov1.Restore{ObjectMeta: objectMeta("r"), Spec: velerov1.RestoreSpec{BackupName: "b"}}
	r.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
	orphan := r.DeepCopy()
	orphan.Name, orphan.Spec.BackupName = "orphan", "gone"
	moved := orphan.DeepCopy()
	moved.Name = "moved"
	require.NoError(t, mark.SetFilesLocation(moved, "main"))
	s, store := newSource(t, b, fresh, r, orphan, moved)

	list, err := s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Empty(t, list, "no file: no operations")
	list, err = s.OfBackup(t.Context(), "fresh")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, key := range []string{layout.BackupItemOperations("b"), layout.RestoreItemOperations("r"), layout.RestoreItemOperations("moved")} {
		data := limittest.PackedText(t, file)
		require.NoError(t, store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))))
	}
	list, err = s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, list, 2)
	list, err = s.OfRestore(t.Context(), "r")
	require.NoError(t, err)
	require.Len(t, list, 2)

	list, err = s.OfRestore(t.Context(), "moved")
	require.NoError(t, err)
	require.Len(t, list, 2, "its files are not with its backup")

	_, err = s.OfBackup(t.Context(), "absent")
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
	_, err = s.OfRestore(t.Context(), "absent")
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
	_, err = s.OfRestore(t.Context(), "orphan")
	require.ErrorContains(t, err, "gone")

	require.NoError(t, store.Put(t.Context(), layout.BackupItemOperations("b"), bytes.NewReader([]byte("junk")), 4))
	_, err = s.OfBackup(t.Context(), "b")
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
}

// breaking breaks off in the middle of every object.
type breaking struct{ objectstore.Store }

var errBroken = errors.New("connection reset")

// Get implements objectstore.Reader.
func (s breaking) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, err := s.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(body, 50), iotest.ErrReader(errBroken)), body}, nil
}

// A file counted as damaged while its bucket broke off, and its operations were given up at once.
func TestAFileThatBreaksOffIsNotDamaged(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: objectMeta("b"), Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	s, store := newSource(t, b)
	data := limittest.PackedText(t, file)
	require.NoError(t, store.Put(t.Context(), layout.BackupItemOperations("b"), bytes.NewReader(data), int64(len(data))))
	s.Stores = mainStores{breaking{store}}
	_, err := s.OfBackup(t.Context(), "b")
	require.ErrorIs(t, err, errBroken)
	require.NotErrorIs(t, err, errgrpc.ErrCorrupt)
}

// memory is what a process follows.
type seenMemory map[string][]operation.State

// States implements server.Memory.
func (m seenMemory) States(kind, name string, _ types.UID) []operation.State { return m[kind+" "+name] }

// Wake implements server.Memory.
func (m seenMemory) Wake(_ context.Context, kind, name string, _ types.UID) {
	m["woken "+kind+" "+name] = nil
}

// A job that has not ended has its operations in records, with what is known of their progress; its
// file is written at the end.
func TestOperationsOfAJobThatWaitsAreRecords(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: objectMeta("b"), Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	b.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	job := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "b-uid"}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ops := []operation.Operation{
		{Action: "a/b", ID: "late", Created: now.Add(time.Hour), Item: operation.Resource{Resource: "pods", Namespace: "n", Name: "x"}},
		{Action: "a/b", ID: "early", Created: now, PostOperation: []operation.Resource{{Resource: "pods", Name: "y"}}},
		{Action: "a/b", ID: "done", Created: now.Add(time.Minute)},
	}
	sum := operation.Summary{Running: []operation.Running{{Action: "a/b", ID: "late", Phase: operation.InProgress, Completed: 3}}}
	require.NoError(t, sum.WriteSummary(b))
	s, store := newSource(t, b)
	_, err := operation.Seal(t.Context(), store, operation.List{Job: job, Epoch: 1, Operations: ops})
	require.NoError(t, err)
	log, err := operation.Open(t.Context(), store, job)
	require.NoError(t, err)
	require.NoError(t, log.Append(t.Context(), operation.Event{Operation: 2, Time: now, End: &operation.End{Error: "no"}}))
	data := limittest.PackedText(t, file)
	require.NoError(t, store.Put(t.Context(), layout.BackupItemOperations("b"), bytes.NewReader(data), int64(len(data))))

	list, err := s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []string{"early", "done", "late"}, []string{list[0].Spec.ID, list[1].Spec.ID, list[2].Spec.ID})
	require.Equal(t, "a/b", list[0].Spec.Action())
	require.Equal(t, itemoperation.PhaseNew, list[0].Status.Phase)
	require.Equal(t, "no", list[1].Status.Error)
	require.True(t, list[1].Status.Updated.Equal(&metav1.Time{Time: now}), "as in the file: %s", list[1].Status.Updated)
	require.Equal(t, itemoperation.PhaseInProgress, list[2].Status.Phase)
	require.EqualValues(t, 3, list[2].Status.Completed, "from the annotation")

	seen := make([]operation.State, 3)
	seen[0].Phase, seen[0].Completed = operation.InProgress, 5
	seen[2].Phase, seen[2].Completed = operation.InProgress, 7
	s.Memory = seenMemory{"Backup b": seen}
	list, err = s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.EqualValues(t, 5, list[2].Status.Completed, "from the process that polls it")
	require.Equal(t, itemoperation.PhaseFailed, list[1].Status.Phase, "an end is never undone")

	ended := b.DeepCopy()
	ended.Status.Phase = velerov1.BackupPhasePartiallyFailed
	s, other := newSource(t, ended)
	require.NoError(t, other.Put(t.Context(), layout.BackupItemOperations("b"), bytes.NewReader(data), int64(len(data))))
	_, err = operation.Seal(t.Context(), other, operation.List{Job: job, Epoch: 1, Operations: ops})
	require.NoError(t, err)
	list, err = s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, list, 2, "the file")
}

func TestDamagedRecordsAreDamagedData(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: objectMeta("b"), Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	b.Status.Phase = velerov1.BackupPhaseFinalizing
	s, store := newSource(t, b)
	require.NoError(t, store.Put(t.Context(), layout.BackupOperations("b", "b-uid")+"list", bytes.NewReader([]byte("[")), 1))
	_, err := s.OfBackup(t.Context(), "b")
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
}
