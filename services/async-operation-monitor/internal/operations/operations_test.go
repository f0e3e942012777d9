package operations_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
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

// stores has one location, "main".
type stores struct{ objectstore.Store }

func (s stores) OpenName(_ context.Context, name string) (objectstore.Store, error) {
	if name != "main" {
		return nil, errgrpc.ErrNotFound
	}
	return s.Store, nil
}

func source(t *testing.T, objects ...client.Object) (*operations.Source, objectstore.Store) {
	t.Helper()
	store := memstore.New()
	return &operations.Source{
		Reader: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), Namespace: "velero", Stores: stores{store},
	}, store
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "velero", Name: name} }

func TestOperationsOfAJob(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: meta("b"), Spec: velerov1.BackupSpec{StorageLocation: "main"}}
	fresh := &velerov1.Backup{ObjectMeta: meta("fresh")}
	r := &velerov1.Restore{ObjectMeta: meta("r"), Spec: velerov1.RestoreSpec{BackupName: "b"}}
	r.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
	orphan := r.DeepCopy()
	orphan.Name, orphan.Spec.BackupName = "orphan", "gone"
	s, store := source(t, b, fresh, r, orphan)

	list, err := s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Empty(t, list, "no file: no operations")
	list, err = s.OfBackup(t.Context(), "fresh")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, key := range []string{layout.BackupItemOperations("b"), layout.RestoreItemOperations("r")} {
		data := packed(t, file)
		require.NoError(t, store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))))
	}
	list, err = s.OfBackup(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, list, 2)
	list, err = s.OfRestore(t.Context(), "r")
	require.NoError(t, err)
	require.Len(t, list, 2)

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
