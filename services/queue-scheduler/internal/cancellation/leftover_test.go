package cancellation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// Of four operations two continue, of which one was followed to its end.
const leftOperations = `[
 {"spec":{"backupItemAction":"x/y","operationID":"open","resourceIdentifier":{"Resource":"pods","Namespace":"n","Name":"p"}},"status":{"phase":"InProgress"}},
 {"spec":{"backupItemAction":"x/y","operationID":"followed","resourceIdentifier":{"Resource":"pods","Namespace":"n","Name":"q"}},"status":{"phase":"InProgress"}},
 {"spec":{"backupItemAction":"x/y","operationID":"failed","resourceIdentifier":{"Resource":"pods","Namespace":"n","Name":"r"}},"status":{"phase":"Failed","error":"disk on fire"}},
 {"spec":{"backupItemAction":"x/y","operationID":"done","resourceIdentifier":{"Resource":"pods","Namespace":"n","Name":"s"}},"status":{"phase":"Completed"}}]`

const stoppedOpen = "cancelled by alice; the operation did not end before its job and may go on"

// leave is a bed where another server left backup b and restore r waiting for operations, with two
// errors each, of which one is that of the failed operation.
func leave(t *testing.T, phase velerov1.BackupPhase) *bed {
	t.Helper()
	o, r := backup("b", phase, holdfast.AnnotationCancel, "alice"), restore("r", velerov1.RestorePhase(phase))
	r.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
	r.Spec.BackupName = "b"
	o.Status.Errors, o.Status.FormatVersion, r.Status.Errors = 2, "1.1.0", 2
	o.Status.BackupItemOperationsAttempted, r.Status.RestoreItemOperationsAttempted = 4, 4
	b := newBed(o, r)
	data, err := json.Marshal(o)
	require.NoError(t, err)
	b.store.Set(layout.BackupMetadata("b"), data)
	b.store.Set(layout.BackupItemOperations("b"), limittest.Packed(t, strings.NewReader(leftOperations)))
	b.store.Set(layout.RestoreItemOperations("r"), limittest.Packed(t, strings.NewReader(leftOperations)))
	for _, owner := range []operation.Job{{Kind: operation.KindBackup, Name: "b", UID: "uid-b"}, {Kind: operation.KindRestore, Name: "r", UID: "uid-r"}} {
		list := operation.List{Job: owner, Inherited: true, Operations: []operation.Operation{{Action: "x/y", ID: "open"}, {Action: "x/y", ID: "followed"}}}
		_, err := operation.Seal(t.Context(), b.store, list)
		require.NoError(t, err)
		log, err := operation.Open(t.Context(), b.store, owner)
		require.NoError(t, err)
		require.NoError(t, log.Append(t.Context(), operation.Event{Operation: 1, Time: b.clock.Now(), End: &operation.End{}}))
	}
	return b
}

// until reconciles until nothing is left to be done, and returns for how long that was waited.
func until(t *testing.T, b *bed, reconcile func() (reconcile.Result, error)) (waited time.Duration) {
	t.Helper()
	for waited < time.Hour {
		result, err := reconcile()
		require.NoError(t, err)
		if result.RequeueAfter == 0 {
			return waited
		}
		waited += result.RequeueAfter
		b.clock.Step(result.RequeueAfter)
	}
	require.Fail(t, "the job does not end")
	return waited
}

func (b *bed) endBoth(t *testing.T) (*velerov1.Backup, *velerov1.Restore) {
	t.Helper()
	c := b.replica(t, "one")
	until(t, b, func() (reconcile.Result, error) { return c.ReconcileBackup(t.Context(), request("b")) })
	until(t, b, func() (reconcile.Result, error) { return c.ReconcileRestore(t.Context(), request("r")) })
	o, r := read(t, b, backup("b", "")), read(t, b, restore("r", ""))
	require.Equal(t, velerov1.BackupPhaseFailed, o.Status.Phase)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, []string{"cancelled by alice", "cancelled by alice"}, []string{o.Status.FailureReason, r.Status.FailureReason})
	return o, r
}

// ends are the operations of a file that ended, with their errors.
func (b *bed) ends(t *testing.T, key string) map[string]string {
	t.Helper()
	data, ok := b.store.Bytes(key)
	require.True(t, ok, key)
	list, err := itemoperation.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	ends := map[string]string{}
	for _, o := range list {
		require.Contains(t, []string{itemoperation.PhaseCompleted, itemoperation.PhaseFailed}, o.Status.Phase, o.Spec.ID)
		ends[o.Spec.ID] = o.Status.Error
	}
	return ends
}

// The file of operations of a job that was ended here said for good that they continue.
func TestOperationsOfAnotherServerEndWithTheCancelledJob(t *testing.T) {
	for _, phase := range unfinished {
		for _, interrupted := range []string{"", layout.BackupMetadata("b"), layout.BackupItemOperations("b"), layout.RestoreItemOperations("r")} {
			t.Run(string(phase)+" "+interrupted, func(t *testing.T) {
				b := leave(t, phase)
				failures := 1
				b.store.Inject(func(op memstore.Op, key string) error {
					if op == memstore.OpPut && key == interrupted && failures > 0 {
						failures--
						return errors.New("connection reset")
					}
					return nil
				})
				o, r := b.endBoth(t)
				b.requireEnded(t, o, r)
				committed, found, err := commit.Committed(t.Context(), b.store, o)
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, o.Status, committed.Status)
				for _, key := range []string{layout.BackupResults("b"), layout.RestoreResults("r"), layout.BackupLog("b"), layout.RestoreLog("r")} {
					require.Contains(t, b.store.Keys(), key)
				}
			})
		}
	}
}

// The file of a restore that a runner of this version restored is the runner's.
func TestARestoreOfARunnerEndsWithoutFiles(t *testing.T) {
	b := leave(t, velerov1.BackupPhaseFinalizing)
	require.NoError(t, b.store.Delete(t.Context(), layout.RestoreOperations("r", "uid-r")+"list"))
	b.store.Set(layout.RestoreOwnerFile("r", "uid-r"), []byte("{}"))
	before, _ := b.store.Bytes(layout.RestoreItemOperations("r"))
	_, r := b.endBoth(t)
	after, _ := b.store.Bytes(layout.RestoreItemOperations("r"))
	require.Equal(t, before, after)
	require.Zero(t, r.Status.RestoreItemOperationsFailed)
}

// A bucket that is away holds up the end of a job for a bounded time.
func TestACancelledJobEndsWithoutTheFilesOfAnotherServer(t *testing.T) {
	for name, away := range map[string]error{"away": errors.New("connection refused"), "refused": objectstore.ErrAccess} {
		for what, broken := range map[string]func(*bed){
			"bucket": func(b *bed) { b.away = away },
			"file of operations": func(b *bed) {
				b.store.Inject(func(op memstore.Op, key string) error {
					if op == memstore.OpPut && (key == layout.BackupItemOperations("b") || key == layout.RestoreItemOperations("r")) {
						return away
					}
					return nil
				})
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				b := leave(t, velerov1.BackupPhaseFinalizing)
				broken(b)
				c := b.replica(t, "one")
				bound := deadline
				if name == "away" {
					bound = 2 * deadline
				}
				took := until(t, b, func() (reconcile.Result, error) { return c.ReconcileBackup(t.Context(), request("b")) })
				require.LessOrEqual(t, took, bound)
				took = until(t, b, func() (reconcile.Result, error) { return c.ReconcileRestore(t.Context(), request("r")) })
				require.LessOrEqual(t, took, bound+3*claimTimeout)
				o, r := read(t, b, backup("b", "")), read(t, b, restore("r", ""))
				require.Equal(t, velerov1.BackupPhaseFailed, o.Status.Phase)
				require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
				require.Contains(t, o.Status.FailureReason, "cancelled by alice")
				require.Equal(t, "cancelled by alice", r.Status.FailureReason)
				if what != "bucket" {
					require.Equal(t, "cancelled by alice", o.Status.FailureReason)
					committed, _, err := commit.Committed(t.Context(), b.store, o)
					require.NoError(t, err)
					require.Equal(t, velerov1.BackupPhaseFailed, committed.Status.Phase)
				}
			})
		}
	}
}

// The file of operations said for good that they continue, and the counters stayed, where the log could
// not be written.
func TestACancelledJobEndsWithoutItsLogAlone(t *testing.T) {
	for name, away := range map[string]error{"away": errors.New("connection refused"), "too slow": context.DeadlineExceeded, "refused": objectstore.ErrAccess} {
		t.Run(name, func(t *testing.T) {
			b := leave(t, velerov1.BackupPhaseFinalizing)
			b.store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpPut && (key == layout.BackupLog("b") || key == layout.RestoreLog("r")) {
					return away
				}
				return nil
			})
			o, r := b.endBoth(t)
			b.requireEnded(t, o, r)
			require.Contains(t, b.store.Keys(), layout.BackupResults("b"))
			require.Contains(t, b.store.Keys(), layout.RestoreResults("r"))
			require.NotContains(t, b.store.Keys(), layout.BackupLog("b"))
			require.NotContains(t, b.store.Keys(), layout.RestoreLog("r"))
		})
	}
}

// The counters of the object went back to those of the metadata file in the bucket, which is older.
func TestCountersOfACancelledJobDoNotGoBack(t *testing.T) {
	damage := func(b *bed, key string) { b.store.Set(key, []byte("junk")) }
	for name, c := range map[string]struct {
		change func(b *bed, key string)
		want   []int
	}{
		"damaged": {damage, []int{4, 1, 3}},
		"absent":  {func(b *bed, key string) { require.NoError(t, b.store.Delete(t.Context(), key)) }, []int{4, 1, 1}},
		"refused": {func(b *bed, _ string) {
			b.store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpGet && (key == layout.BackupItemOperations("b") || key == layout.RestoreItemOperations("r")) {
					return objectstore.ErrAccess
				}
				return nil
			})
		}, []int{4, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := leave(t, velerov1.BackupPhaseFinalizing)
			o, r := read(t, b, backup("b", "")), read(t, b, restore("r", ""))
			o.Status.BackupItemOperationsCompleted, o.Status.BackupItemOperationsFailed = 1, 1
			r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed = 1, 1
			require.NoError(t, errors.Join(b.client.Update(t.Context(), o), b.client.Update(t.Context(), r)))
			c.change(b, layout.BackupItemOperations("b"))
			c.change(b, layout.RestoreItemOperations("r"))
			o, r = b.endBoth(t)
			s, rs := &o.Status, &r.Status
			require.Equal(t, c.want, []int{s.BackupItemOperationsAttempted, s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed})
			require.Equal(t, c.want, []int{rs.RestoreItemOperationsAttempted, rs.RestoreItemOperationsCompleted, rs.RestoreItemOperationsFailed})
			committed, _, err := commit.Committed(t.Context(), b.store, o)
			require.NoError(t, err)
			require.Equal(t, o.Status, committed.Status)
		})
	}
}

// The metadata file of a backup is not written once the backup is gone: a synchronisation would bring
// it back, without its data. Nothing else of these files has to be written here.
func TestABackupThatIsDeletedMeanwhileIsNotWrittenAgain(t *testing.T) {
	b := leave(t, velerov1.BackupPhaseFinalizing)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupItemOperations("b")))
	before, _ := b.store.Bytes(layout.BackupMetadata("b"))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupItemOperations("b") {
			return client.IgnoreNotFound(b.client.Delete(t.Context(), backup("b", "")))
		}
		return nil
	})
	c := b.replica(t, "one")
	until(t, b, func() (reconcile.Result, error) { return c.ReconcileBackup(t.Context(), request("b")) })
	after, _ := b.store.Bytes(layout.BackupMetadata("b"))
	require.Equal(t, string(before), string(after))
}

// requireEnded requires that the operations of both have ended in the files and in the counters.
func (b *bed) requireEnded(t *testing.T, o *velerov1.Backup, r *velerov1.Restore) {
	t.Helper()
	want := map[string]string{"open": stoppedOpen, "followed": "", "failed": "disk on fire", "done": ""}
	require.Equal(t, want, b.ends(t, layout.BackupItemOperations("b")))
	require.Equal(t, want, b.ends(t, layout.RestoreItemOperations("r")))
	s, rs := &o.Status, &r.Status
	require.Equal(t, []int{4, 2, 2, 3}, []int{s.BackupItemOperationsAttempted, s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed, s.Errors})
	require.Equal(t, []int{4, 2, 2, 3}, []int{rs.RestoreItemOperationsAttempted, rs.RestoreItemOperationsCompleted, rs.RestoreItemOperationsFailed, rs.Errors})
}
