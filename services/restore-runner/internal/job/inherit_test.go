package job_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

const (
	endedOperation = `[{"spec":{"restoreItemAction":"x/y","resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":"p"},"operationID":"op-1"},"status":{"phase":"Completed"}}]`
	openOperation  = `[{"spec":{"restoreItemAction":"x/y","resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":"p"},"operationID":"op-1"},"status":{"phase":"InProgress"}}]`
)

// left makes a Restore that another server left in a phase, with its files.
func (b *bench) left(t *testing.T, phase velerov1.RestorePhase, operations string, change ...func(*velerov1.Restore)) {
	t.Helper()
	change = append(change, func(r *velerov1.Restore) {
		at := metav1.NewTime(time.Now().Add(-time.Hour))
		r.Status = velerov1.RestoreStatus{
			Phase: phase, StartTimestamp: &at, Warnings: 2, Errors: 1, Progress: &velerov1.RestoreProgress{TotalItems: 7, ItemsRestored: 7},
		}
	})
	b.create(t, false, change...)
	for key, text := range map[string]string{
		layout.RestoreItemOperations("r"): operations, layout.RestoreResults("r"): `{"warnings":{},"errors":{}}`, layout.RestoreLog("r"): "a line of Velero\n",
	} {
		require.NoError(t, objectstore.PutBytes(t.Context(), b.store, key, zipped(t, text)))
	}
}

// A restore that another server left in Finalizing stands still there: no runner takes it, and it
// can neither be cancelled nor does it ever end.
func TestARestoreThatAnotherServerDidIsFinalized(t *testing.T) {
	const fin, finPF = velerov1.RestorePhaseFinalizing, velerov1.RestorePhaseFinalizingPartiallyFailed
	for name, tc := range map[string]struct {
		phase      velerov1.RestorePhase
		operations string
		want       velerov1.RestorePhase
		errors     int
	}{
		"no operations":           {fin, "[]", velerov1.RestorePhaseCompleted, 1},
		"an error before":         {finPF, "[]", velerov1.RestorePhasePartiallyFailed, 1},
		"all ended":               {fin, endedOperation, velerov1.RestorePhaseCompleted, 1},
		"one failed before":       {finPF, strings.Replace(endedOperation, "Completed", "Failed", 1), velerov1.RestorePhasePartiallyFailed, 1},
		"one did not end":         {finPF, openOperation, velerov1.RestorePhasePartiallyFailed, 2},
		"the phase does not tell": {fin, openOperation, velerov1.RestorePhasePartiallyFailed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.left(t, tc.phase, tc.operations)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"), "it needs no place in the ledger")
			r := b.get(t)
			require.Equal(t, tc.want, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, []int{3, tc.errors}, []int{r.Status.Warnings, r.Status.Errors})
			require.Equal(t, &velerov1.RestoreProgress{TotalItems: 7, ItemsRestored: 7}, r.Status.Progress)
			require.NotNil(t, r.Status.CompletionTimestamp)
			require.Empty(t, r.Status.FailureReason)
			require.Contains(t, b.file(t, layout.RestoreLog("r")), "a line of Velero\n")
			require.Contains(t, b.file(t, layout.RestoreResults("r")), "another server left the restore in phase "+string(tc.phase))
			if tc.operations == openOperation {
				for _, key := range []string{layout.RestoreResults("r"), layout.RestoreLog("r")} {
					for _, what := range []string{"op-1", "x/y", "pods", "did not end"} {
						require.Contains(t, b.file(t, key), what)
					}
				}
				require.Contains(t, b.file(t, layout.RestoreItemOperations("r")), `"phase":"Failed"`)
			}
			require.Empty(t, b.cluster.Requests("POST "))
			require.Equal(t, []velerov1.RestorePhase{tc.want}, b.ended)
		})
	}
}

// A sealed list that was made of another server's operations does not make the restore one of this
// version's, also for a runner that takes over.
func TestARestoreWhoseOperationsWereFollowedIsFinalized(t *testing.T) {
	const fin, finPF = velerov1.RestorePhaseFinalizing, velerov1.RestorePhaseFinalizingPartiallyFailed
	for name, tc := range map[string]struct {
		phase, want velerov1.RestorePhase
		end         operation.End
		errors      int
		claim       string
	}{
		"it completed":              {fin, velerov1.RestorePhaseCompleted, operation.End{}, 1, ""},
		"it failed":                 {finPF, velerov1.RestorePhasePartiallyFailed, operation.End{Error: "no space"}, 2, ""},
		"a runner began before":     {fin, velerov1.RestorePhaseCompleted, operation.End{}, 1, `{"holder":"","epoch":1}`},
		"with a failed one as well": {finPF, velerov1.RestorePhasePartiallyFailed, operation.End{Error: "no space"}, 2, `{"holder":"","epoch":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.left(t, tc.phase, openOperation, func(r *velerov1.Restore) {
				if tc.claim != "" {
					metav1.SetMetaDataAnnotation(&r.ObjectMeta, holdfast.AnnotationClaim, tc.claim)
				}
			})
			list := operation.List{Job: operation.Job{Kind: operation.KindRestore, Name: "r", UID: "uid-r"}, Inherited: true,
				Operations: []operation.Operation{{Action: "x/y", ID: "op-1"}}}
			_, err := operation.Seal(t.Context(), b.store, list)
			require.NoError(t, err)
			log, err := operation.Open(t.Context(), b.store, list.Job)
			require.NoError(t, err)
			require.NoError(t, log.Append(t.Context(), operation.Event{Time: time.Now(), End: &tc.end}))
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.get(t)
			require.Equal(t, tc.want, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, tc.errors, r.Status.Errors)
			require.Equal(t, 7, r.Status.Progress.ItemsRestored)
			results := b.file(t, layout.RestoreResults("r"))
			if tc.end.Error == "" {
				require.NotContains(t, results, "op-1")
			} else {
				require.Contains(t, results, `operation \"op-1\" of action \"x/y\" failed: no space`)
			}
			require.Contains(t, b.file(t, layout.RestoreItemOperations("r")), `"phase":"`+string(log.States()[0].Phase)+`"`)
			require.Empty(t, b.cluster.Requests("POST "))
		})
	}
}

// What was restored is in the cluster, whatever becomes of the files.
func TestAFinalizingRestoreEndsWithoutItsBackup(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, *bench)
		reason  string
	}{
		"no backup": {func(t *testing.T, b *bench) {
			require.NoError(t, b.client.Delete(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"}}))
		}, `read backup "b"`},
		"no location": {func(_ *testing.T, b *bench) { b.locations.err = errors.New("no such bucket") }, "no such bucket"},
		"read-only": {func(_ *testing.T, b *bench) {
			b.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpPut {
					return objectstore.ErrReadOnly
				}
				return nil
			})
		}, "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.left(t, velerov1.RestorePhaseFinalizing, openOperation)
			tc.prepare(t, b)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.get(t)
			require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
			require.Contains(t, r.Status.FailureReason, tc.reason)
			require.Equal(t, 7, r.Status.Progress.ItemsRestored)
			require.Equal(t, 2, r.Status.Errors)
		})
	}
}

func TestAFinalizingRestoreIsCancelled(t *testing.T) {
	b := newBench(t)
	b.left(t, velerov1.RestorePhaseFinalizing, openOperation)
	var once sync.Once
	b.store.Inject(func(memstore.Op, string) error {
		once.Do(func() { b.ask(t, true) })
		return nil
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.get(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "cancelled by alice", r.Status.FailureReason)
	require.Equal(t, 7, r.Status.Progress.ItemsRestored)
	require.Equal(t, []int{3, 2}, []int{r.Status.Warnings, r.Status.Errors}, "with what its files have")
	require.Contains(t, b.file(t, layout.RestoreItemOperations("r")), `"phase":"Failed"`, "it said for good that they continue")
	require.Contains(t, b.file(t, layout.RestoreResults("r")), "op-1")
}

// A runner may die at every call to the bucket; who takes over comes to the same end.
func TestASuccessorFinalizesWhatTheLastOneBegan(t *testing.T) {
	for k := 1; ; k++ {
		b := newBench(t)
		b.left(t, velerov1.RestorePhaseFinalizing, openOperation)
		dying, die := context.WithCancelCause(t.Context())
		away, calls := errors.New("bucket is away"), 0
		b.store.Inject(func(memstore.Op, string) error {
			if calls++; calls < k {
				return nil
			}
			b.claims.loseIt()
			die(away)
			return away
		})
		_ = b.runner.Run(dying, "r", "uid-r") // it ends as that of a killed process
		b.store.Inject(nil)
		die(nil)
		if calls < k {
			require.Greater(t, k, 5, "each of the files was an occasion")
			return
		}
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		r := b.get(t)
		require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
		require.Equal(t, []int{3, 2}, []int{r.Status.Warnings, r.Status.Errors})
	}
}

// Every phase that another server may leave, and what a runner makes of it without a place in the
// ledger.
func TestPhasesThatARunnerTakes(t *testing.T) {
	for phase, want := range map[velerov1.RestorePhase]velerov1.RestorePhase{
		"": "", velerov1.RestorePhaseNew: velerov1.RestorePhaseNew, // not admitted
		velerov1.RestorePhaseFailedValidation:                          velerov1.RestorePhaseFailedValidation,
		velerov1.RestorePhaseInProgress:                                velerov1.RestorePhaseInProgress,                 // neither
		velerov1.RestorePhaseWaitingForPluginOperations:                velerov1.RestorePhaseWaitingForPluginOperations, // async-operation-monitor's
		velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed: velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.RestorePhaseFinalizing:                                velerov1.RestorePhaseCompleted,
		velerov1.RestorePhaseFinalizingPartiallyFailed:                 velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseCompleted:                                 velerov1.RestorePhaseCompleted,
		velerov1.RestorePhasePartiallyFailed:                           velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseFailed:                                    velerov1.RestorePhaseFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBench(t)
			b.left(t, phase, "[]")
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			require.Equal(t, want, b.get(t).Status.Phase)
		})
	}
}
