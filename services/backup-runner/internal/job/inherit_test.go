package job

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

const (
	noOperations = "[]\n"
	done         = `[{"spec":{"backupItemAction":"x/y","resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":"p"},"operationID":"op-1"},"status":{"phase":"Completed"}}]`
	running      = `[{"spec":{"backupItemAction":"x/y","resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":"p"},"operationID":"op-1"},"status":{"phase":"InProgress"}}]`
)

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write([]byte(text))
	require.NoError(t, errors.Join(err, zip.Close()))
	return out.Bytes()
}

// left is a backup that another server left in a phase, with what it stores before it writes that
// phase.
func (w *world) left(t *testing.T, inCluster, inBucket velerov1.BackupPhase, operations string) *velerov1.Backup {
	t.Helper()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b1", UID: "uid-1"}}
	b.Spec.StorageLocation = "default"
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	b.Status.Phase, b.Status.StartTimestamp, b.Status.FormatVersion, b.Status.Version = inBucket, &at, "1.1.0", 1
	b.Status.Progress = &velerov1.BackupProgress{TotalItems: 7, ItemsBackedUp: 7}
	b.Status.Warnings, b.Status.Errors = 2, 1
	b.TypeMeta = metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"}
	data, err := json.Marshal(b)
	require.NoError(t, err)
	w.store.Set(layout.BackupMetadata("b1"), data)
	w.store.Set(layout.BackupTarball("b1"), []byte("tarball"))
	w.store.Set(layout.BackupLog("b1"), packed(t, "a line of Velero\n"))
	w.store.Set(layout.BackupResults("b1"), packed(t, `{"warnings":{},"errors":{}}`))
	w.store.Set(layout.BackupItemOperations("b1"), packed(t, operations))
	b.Status.Phase = inCluster
	require.NoError(t, w.client.Create(t.Context(), b))
	return b
}

// followed has the operation of that backup followed here, until it ended.
func (w *world) followed(t *testing.T, end operation.End) *operation.Log {
	t.Helper()
	list := operation.List{Job: operation.Job{Kind: operation.KindBackup, Name: "b1", UID: "uid-1"}, Inherited: true,
		Operations: []operation.Operation{{Action: "x/y", ID: "op-1"}}}
	_, err := operation.Seal(t.Context(), w.store, list)
	require.NoError(t, err)
	log, err := operation.Open(t.Context(), w.store, list.Job)
	require.NoError(t, err)
	require.NoError(t, log.Append(t.Context(), operation.Event{Time: time.Now(), End: &end}))
	return log
}

// runCancelled runs a backup that a user has cancelled, and requires that it ends so in the bucket,
// too.
func (w *world) runCancelled(t *testing.T, b *velerov1.Backup) *velerov1.Backup {
	t.Helper()
	asked := w.read(t, b)
	metav1.SetMetaDataAnnotation(&asked.ObjectMeta, holdfast.AnnotationCancel, "alice")
	require.NoError(t, w.client.Update(t.Context(), asked))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.read(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
	require.Equal(t, got.Status, w.committed(t, b).Status)
	return got
}

func (w *world) committed(t *testing.T, b *velerov1.Backup) *velerov1.Backup {
	t.Helper()
	stored, found, err := commit.Committed(t.Context(), w.store, b)
	require.NoError(t, err)
	require.True(t, found)
	return stored
}

// A backup that another server left in Finalizing gets that phase again from the bucket, and so on
// without end.
func TestABackupThatAnotherServerStoredIsFinalized(t *testing.T) {
	const (
		fin, finPF   = velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed
		wait, waitPF = velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	)
	for name, tc := range map[string]struct {
		inCluster, inBucket velerov1.BackupPhase
		operations          string
		want                velerov1.BackupPhase
		errors              int
	}{
		"finalizing":                             {fin, fin, noOperations, velerov1.BackupPhaseCompleted, 1},
		"finalizing with an error":               {finPF, finPF, noOperations, velerov1.BackupPhasePartiallyFailed, 1},
		"operations that ended":                  {fin, wait, done, velerov1.BackupPhaseCompleted, 1},
		"an operation that did not end":          {finPF, wait, running, velerov1.BackupPhasePartiallyFailed, 2},
		"an operation that failed before":        {finPF, waitPF, strings.Replace(done, "Completed", "Failed", 1), velerov1.BackupPhasePartiallyFailed, 1},
		"and the phase does not tell":            {fin, wait, running, velerov1.BackupPhasePartiallyFailed, 2},
		"an error before":                        {finPF, waitPF, done, velerov1.BackupPhasePartiallyFailed, 1},
		"the phase was not written any more":     {velerov1.BackupPhaseInProgress, fin, noOperations, velerov1.BackupPhaseCompleted, 1},
		"nor was it, with an operation":          {velerov1.BackupPhaseInProgress, wait, running, velerov1.BackupPhasePartiallyFailed, 2},
		"the end was written to the bucket only": {fin, velerov1.BackupPhaseCompleted, running, velerov1.BackupPhaseCompleted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.left(t, tc.inCluster, tc.inBucket, tc.operations)
			if tc.inCluster == velerov1.BackupPhaseInProgress {
				require.NoError(t, ledger.New(w.client, w.client, namespace).Admit(t.Context(), ledger.Entry{
					UID: b.UID, Kind: ledger.KindBackup, Namespace: namespace, Name: "b1", Namespaces: []string{"*"}, Since: time.Unix(1, 0)}, ledger.Limits{}))
			}
			keys := w.store.Keys()
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.read(t, b)
			require.Equal(t, tc.want, got.Status.Phase)
			require.Equal(t, tc.errors, got.Status.Errors)
			require.Equal(t, 2, got.Status.Warnings)
			require.Equal(t, "1.1.0", got.Status.FormatVersion, "the tarball is Velero's")
			require.Equal(t, got.Status, w.committed(t, b).Status)
			require.Equal(t, keys, w.store.Keys())
			tarball, _ := w.store.Bytes(layout.BackupTarball("b1"))
			require.Equal(t, "tarball", string(tarball))
			if tc.inBucket.Terminal() {
				return
			}
			require.NotNil(t, got.Status.CompletionTimestamp)
			if tc.operations == running {
				require.Equal(t, []int{1, 0, 1}, []int{got.Status.BackupItemOperationsAttempted, got.Status.BackupItemOperationsCompleted, got.Status.BackupItemOperationsFailed})
				for _, key := range []string{layout.BackupResults("b1"), layout.BackupLog("b1")} {
					for _, what := range []string{"op-1", "x/y", "pods", "did not end"} {
						require.Contains(t, w.document(t, key), what)
					}
				}
				require.Contains(t, w.document(t, layout.BackupItemOperations("b1")), `"phase":"Failed"`)
			}
			require.Contains(t, w.document(t, layout.BackupLog("b1")), "a line of Velero\n")
			require.NoError(t, w.Run(t.Context(), "b1", b.UID), "once is enough")
			require.Equal(t, got.Status, w.read(t, b).Status)
		})
	}
}

// Operations that were followed here end as they did, and what was recorded of them goes with the
// parts.
func TestABackupWhoseOperationsWereFollowedIsFinalized(t *testing.T) {
	for name, tc := range map[string]struct {
		phase, want velerov1.BackupPhase
		end         operation.End
		errors      int
	}{
		"it completed": {velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseCompleted, operation.End{}, 1},
		"it failed":    {velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhasePartiallyFailed, operation.End{Error: "no space"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.left(t, tc.phase, velerov1.BackupPhaseWaitingForPluginOperations, running)
			keys := w.store.Keys()
			log := w.followed(t, tc.end)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.read(t, b)
			require.Equal(t, tc.want, got.Status.Phase, got.Status.FailureReason)
			require.Equal(t, tc.errors, got.Status.Errors)
			completed, failed := log.Count()
			require.Equal(t, []int{1, completed, failed}, []int{got.Status.BackupItemOperationsAttempted, got.Status.BackupItemOperationsCompleted, got.Status.BackupItemOperationsFailed})
			var results joblog.Results
			require.NoError(t, json.Unmarshal([]byte(w.document(t, layout.BackupResults("b1"))), &results))
			require.Len(t, results.Errors.Namespaces["a"], failed)
			for _, message := range results.Errors.Namespaces["a"] {
				require.Contains(t, message, `operation "op-1" of action "x/y" failed error: /no space`)
			}
			require.Contains(t, w.document(t, layout.BackupItemOperations("b1")), `"phase":"`+string(log.States()[0].Phase)+`"`)
			require.Equal(t, keys, w.store.Keys())
		})
	}
}

// Without anything of the backup in the bucket it would be collected anew, hours later and
// under the same name.
func TestAFinalizingBackupThatTheBucketDoesNotHoldFails(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"no metadata file": func(w *world) { require.NoError(t, w.store.Delete(t.Context(), layout.BackupMetadata("b1"))) },
		"another backup's": func(w *world) { w.store.Set(layout.BackupMetadata("b1"), []byte(`{"metadata":{"uid":"other"}}`)) },
		"read-only": func(w *world) {
			w.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpPut {
					return objectstore.ErrReadOnly
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.left(t, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizing, running)
			prepare(w)
			keys := w.store.Keys()
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.read(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.NotEmpty(t, got.Status.FailureReason)
			require.Equal(t, keys, w.store.Keys())
		})
	}
}

// A bucket that is away does not fail a backup that lies in it.
func TestAFinalizingBackupWaitsForItsBucket(t *testing.T) {
	w := newWorld(t)
	w.StorePatience = 0
	b := w.left(t, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizing, running)
	w.store.Inject(func(memstore.Op, string) error { return errGone })
	require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), errGone)
	got := w.read(t, b)
	require.Equal(t, velerov1.BackupPhaseFinalizing, got.Status.Phase)
	c, _, err := claim.Parse(got)
	require.NoError(t, err)
	require.Empty(t, c.Holder, "whoever sees it next may take it")
	w.store.Inject(nil)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, w.read(t, b).Status.Phase)
}

func TestAFinalizingBackupIsCancelled(t *testing.T) {
	w := newWorld(t)
	b := w.left(t, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseWaitingForPluginOperations, running)
	w.runCancelled(t, b)
}

// The file of operations kept as running what was cancelled, in a backup that ended so.
func TestACancelledInheritedBackupHasTheEndsOfItsOperations(t *testing.T) {
	w := newWorld(t)
	b := w.left(t, velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhaseWaitingForPluginOperations, running)
	keys := w.store.Keys()
	w.followed(t, operation.End{Error: "the tape was taken out"})
	got := w.runCancelled(t, b)
	require.Equal(t, []int{1, 0, 1}, []int{got.Status.BackupItemOperationsAttempted, got.Status.BackupItemOperationsCompleted, got.Status.BackupItemOperationsFailed})
	require.Contains(t, w.document(t, layout.BackupItemOperations("b1")), `"phase":"Failed"`)
	for _, key := range []string{layout.BackupItemOperations("b1"), layout.BackupResults("b1"), layout.BackupLog("b1")} {
		require.Contains(t, w.document(t, key), "the tape was taken out", key)
	}
	require.Equal(t, keys, w.store.Keys())
}

// A runner may die at every call to the bucket; its successor comes to the same end, with no entry
// twice in the results.
func TestASuccessorFinalizesWhatTheLastOneBegan(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t)
		w.StorePatience = 0
		b := w.left(t, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseWaitingForPluginOperations, running)
		dying, die := context.WithCancelCause(t.Context())
		calls := 0
		w.store.Inject(func(memstore.Op, string) error {
			if calls++; calls < k {
				return nil
			}
			w.instance.loseClaim()
			die(errGone)
			return errGone
		})
		_ = w.Run(dying, "b1", b.UID) // it ends as that of a killed process
		w.store.Inject(nil)
		die(nil)
		if calls < k {
			require.Greater(t, k, 7, "each of the files was an occasion")
			return
		}
		require.NoError(t, w.Run(t.Context(), "b1", b.UID))
		got := w.read(t, b)
		require.Equal(t, velerov1.BackupPhasePartiallyFailed, got.Status.Phase)
		require.Equal(t, 2, got.Status.Errors)
		require.Equal(t, got.Status, w.committed(t, b).Status)
		var results joblog.Results
		require.NoError(t, json.Unmarshal([]byte(w.document(t, layout.BackupResults("b1"))), &results))
		require.Len(t, results.Errors.Namespaces["a"], 1)
	}
}
