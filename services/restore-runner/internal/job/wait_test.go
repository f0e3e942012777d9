package job_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

var restoreJob = operation.Job{Kind: operation.KindRestore, Name: "r", UID: "uid-r"}

// isWaiting reports whether a phase belongs to async-operation-monitor.
func isWaiting(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseWaitingForPluginOperations || p == velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed
}

// openOperations opens those of the restore.
func (b *bench) openOperations(t *testing.T) *operation.Log {
	t.Helper()
	log, err := operation.Open(t.Context(), b.store, restoreJob)
	require.NoError(t, err)
	return log
}

// moveOn ends the operations of a restore that waits, all with that error, as
// async-operation-monitor does; false where it does not wait.
func (b *bench) moveOn(t *testing.T, failure string) bool {
	t.Helper()
	r := b.getRestore(t)
	if !isWaiting(r.Status.Phase) {
		return false
	}
	log := b.openOperations(t)
	for i := range log.Operations() {
		if !log.States()[i].Phase.Ended() {
			require.NoError(t, log.Append(t.Context(), operation.Event{Operation: i, Time: time.Unix(1700000100, 0).UTC(), End: &operation.End{Error: failure}}))
		}
	}
	r.Status.Phase = velerov1.RestorePhaseFinalizing
	if failure != "" {
		r.Status.Phase = velerov1.RestorePhaseFinalizingPartiallyFailed
	}
	require.NoError(t, b.client.Update(t.Context(), r))
	return true
}

// finishRestore runs the restore to its end, through its operations.
func (b *bench) finishRestore(t *testing.T, failure string) {
	t.Helper()
	for b.runLife(t, 0, false); b.moveOn(t, failure); {
		b.runLife(t, 0, false)
	}
}

// newStartingScene is a scene whose ConfigMap "two" begins an operation.
func newStartingScene(t *testing.T) (*bench, *starter) {
	t.Helper()
	b, s := newScene(t, ""), &starter{calls: map[string]int{}}
	s.addTo(b)
	b.runner = newRunner(b.config)
	return b, s
}

// waitingRestore runs a scene until it waits for its operation.
func waitingRestore(t *testing.T) *bench {
	t.Helper()
	b, _ := newStartingScene(t)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed, r.Status.Phase, "an object failed before")
	require.Equal(t, 1, r.Status.RestoreItemOperationsAttempted)
	require.Positive(t, r.Status.Progress.ItemsRestored)
	require.Nil(t, r.Status.CompletionTimestamp)
	held, claimed, err := claim.Parse(r)
	require.NoError(t, err)
	require.True(t, claimed)
	require.Empty(t, held.Owner, "another may take it at once")
	log := b.openOperations(t)
	require.Len(t, log.Operations(), 1)
	op := log.Operations()[0]
	require.Equal(t, []string{"a.io/begins", "RestoreItemActionV2", "op-2"}, []string{op.Action, op.Kind, op.ID})
	require.Equal(t, operation.Resource{Resource: "configmaps", Namespace: "a", Name: "two"}, op.Item)
	b.config.Claims = &jobtest.Holder{Name: "next"}
	return b
}

// A restore whose actions began operations gives its claim away until they have ended, and leaves
// paused what it paused; a failed operation is an error that names item, action and operation.
func TestARestoreWaitsForItsOperations(t *testing.T) {
	for name, failure := range map[string]string{"completes": "", "fails": "no space left"} {
		t.Run(name, func(t *testing.T) {
			b := waitingRestore(t)
			before := b.getRestore(t).Status.Errors
			require.Equal(t, object{"size": 1.0, "paused": true}, b.readGadget())
			require.NotEmpty(t, mark.PausedLocation(b.getRestore(t)))
			b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
				t.Error("no action is called any more")
				return job.ActionSet{}
			}
			requests := len(b.cluster.Requests("POST "))
			require.True(t, b.moveOn(t, failure))
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), "it needs no place in the ledger")
			require.Len(t, b.cluster.Requests("POST "), requests)
			require.Equal(t, object{"size": 1.0}, b.readGadget())
			r, failed := b.getRestore(t), 0
			if failure != "" {
				failed = 1
			}
			s := r.Status
			require.Equal(t, velerov1.RestorePhasePartiallyFailed, s.Phase, s.FailureReason)
			require.Empty(t, mark.PausedLocation(r))
			require.Equal(t, []int{1, 1 - failed, failed, before + failed}, []int{s.RestoreItemOperationsAttempted, s.RestoreItemOperationsCompleted, s.RestoreItemOperationsFailed, s.Errors})
			file := b.readGzip(t, layout.RestoreItemOperations("r"))
			for _, text := range []string{`"restoreName":"r","restoreUID":"uid-r","restoreItemAction":"a.io/begins"`, `"operationID":"op-2"`,
				`"resourceIdentifier":{"Group":"","Resource":"configmaps","Namespace":"a","Name":"two"}`} {
				require.Contains(t, file, text)
			}
			if failure == "" {
				require.Contains(t, file, `"phase":"Completed"`)
				return
			}
			require.Contains(t, file, `"phase":"Failed"`)
			for _, key := range []string{layout.RestoreResults("r"), layout.RestoreLog("r")} {
				text := strings.ReplaceAll(b.readGzip(t, key), `\`, "")
				require.Contains(t, text, `operation "op-2" of action a.io/begins failed: no space left`)
			}
			require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "configmaps a/two: operation")
		})
	}
}

// A holder that dies in any write on the way from the operations' end to the restore's is followed
// by one that comes to the same end.
func TestASuccessorEndsARestoreWithOperations(t *testing.T) {
	t.Parallel()
	undisturbed := waitingRestore(t)
	require.True(t, undisturbed.moveOn(t, "no space left"))
	whole := undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	require.Equal(t, 1, strings.Count(want.Results, "no space left"))
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after the write: ", after), func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k++ {
				b := waitingRestore(t)
				require.True(t, b.moveOn(t, "no space left"))
				first := b.runLife(t, k, after)
				if !first.isGone() {
					require.Greater(t, k, whole.writes-3)
					require.Greater(t, k, 8, "the end was cut at many points")
					return
				}
				b.finishRestore(t, "no space left")
				require.Equal(t, want, b.readOutcome(t), "death at write %d: %s", k, first.what)
			}
		})
	}
}

// A holder that dies around the end of the objects, with the list sealed or not, is followed by one
// that waits for the same operation, which is begun once.
func TestASuccessorWaitsForWhatADeadRunnerBegan(t *testing.T) {
	t.Parallel()
	undisturbed, _ := newStartingScene(t)
	whole := undisturbed.runLife(t, 0, false)
	require.True(t, undisturbed.moveOn(t, ""))
	undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	for k := whole.writes - 6; k <= whole.writes; k++ {
		for _, after := range []bool{false, true} {
			b, s := newStartingScene(t)
			first := b.runLife(t, k, after)
			b.finishRestore(t, "")
			for id, n := range s.calls {
				require.Equal(t, 1, n, "%s, death at write %d: %s", id, k, first.what)
			}
			got := b.readOutcome(t)
			if strings.Contains(got.Results, unclear) {
				continue // the call itself was cut
			}
			require.Equal(t, want, got, "death at write %d: %s", k, first.what)
		}
	}
}

// Whether all operations have ended is decided by the records, not by the phase; a list that is
// missing is sealed once more.
func TestARestoreWaitsAgainForWhatHasNotEnded(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *bench){
		"not ended": func(*testing.T, *bench) {},
		"list gone": func(t *testing.T, b *bench) {
			require.NoError(t, b.store.Delete(t.Context(), layout.RestoreOperations("r", "uid-r")+"list"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := waitingRestore(t)
			prepare(t, b)
			r := b.getRestore(t)
			r.Status.Phase = velerov1.RestorePhaseFinalizingPartiallyFailed
			require.NoError(t, b.client.Update(t.Context(), r))
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed, b.getRestore(t).Status.Phase, b.getRestore(t).Status.FailureReason)
			require.Len(t, b.openOperations(t).Operations(), 1)
		})
	}
}

// A cancelled restore that queue-scheduler took out of its wait ends although an operation has not, which is an error.
func TestACancelledRestoreEndsAlthoughOperationsDoNot(t *testing.T) {
	b := waitingRestore(t)
	b.requestCancel(t, false)
	r := b.getRestore(t)
	r.Status.Phase = velerov1.RestorePhaseFinalizingPartiallyFailed
	require.NoError(t, b.client.Update(t.Context(), r))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r = b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "cancelled by alice", r.Status.FailureReason)
	require.Positive(t, r.Status.Errors)
	require.Equal(t, []string{"op-2"}, b.cancels.Calls())
	require.False(t, b.openOperations(t).Ended())
}

// What operations there were is not known any more: that is an error of the restore, once.
func TestADamagedListOfOperationsIsAnErrorOfTheRestore(t *testing.T) {
	b := waitingRestore(t)
	before := b.getRestore(t).Status.Errors
	b.store.Set(layout.RestoreOperations("r", "uid-r")+"list", []byte("{"))
	r := b.getRestore(t)
	r.Status.Phase = velerov1.RestorePhaseFinalizingPartiallyFailed
	require.NoError(t, b.client.Update(t.Context(), r))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase, b.getRestore(t).Status.FailureReason)
	require.Equal(t, before+1, b.getRestore(t).Status.Errors)
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "the operations of the restore are not known")
}

// atLast calls do before the last object of the scene, when the operation was begun.
func (b *bench) atLast(s *starter, do func()) {
	var once sync.Once
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		s.mu.Lock()
		begun := s.calls["ConfigMap a/two"] > 0
		s.mu.Unlock()
		if begun && r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "two" {
			once.Do(do)
		}
		return refuseAdmission(r, body)
	})
}

// The operations of a restore that is cancelled or deleted while its runner works are cancelled once. A
// cancelled one does not wait for them.
func TestARestoreThatIsStoppedHasItsOperationsCancelled(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		b, s := newStartingScene(t)
		b.atLast(s, func() { b.requestCancel(t, true) })
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		b.requireCancelled(t)
		require.Equal(t, []string{"op-2"}, b.cancels.Calls())
		require.Equal(t, object{"size": 1.0}, b.readGadget())
		require.Contains(t, b.readGzip(t, layout.RestoreItemOperations("r")), "the restore failed: cancelled by alice, the cancel was acknowledged")
		require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "it may still be running")
		require.Equal(t, 1, b.getRestore(t).Status.RestoreItemOperationsFailed)
	})
	t.Run("deleted", func(t *testing.T) {
		b, s := newStartingScene(t)
		b.atLast(s, func() { require.NoError(t, b.client.Delete(t.Context(), b.getRestore(t))) })
		require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
		if isWaiting(b.getRestore(t).Status.Phase) { // it ended before it read the request
			return
		}
		require.Zero(t, newControl(b).reconcileRestore(t))
		require.Equal(t, []string{"op-2"}, b.cancels.Calls())
		require.Len(t, b.cleaner.cleaned, 1)
	})
}

// orphanedOperation is a restore whose holder died when it had begun an operation and sealed
// nothing.
func orphanedOperation(t *testing.T) *bench {
	t.Helper()
	for {
		if b := begunAndDead(t); b.readGadget() != nil { // else the runner died before it created what it pauses
			return b
		}
	}
}

func begunAndDead(t *testing.T) *bench {
	t.Helper()
	b, s := newStartingScene(t)
	ctx, stop := context.WithCancel(t.Context())
	b.atLast(s, func() {
		stop()
		b.claims.LoseClaim()
	})
	dying := b.config
	var leave func()
	dying.REST, leave = b.cluster.OpenFaultyDoor(nil)
	_ = newRunner(dying).Run(ctx, "r", "uid-r")
	leave()
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	b.cluster.Fail(refuseAdmission)
	b.config.Claims = &jobtest.Holder{Name: "next"}
	return b
}

// A successor that cannot read the backup any more finds what was begun in the records and cancels it. An
// operation that cannot be cancelled is named.
func TestASuccessorThatFailsHasOperationsCancelled(t *testing.T) {
	b := orphanedOperation(t)
	b.cancels.Answer = func(context.Context, action.Operation) (bool, error) { return false, nil }
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), []byte("hello")))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "the tarball of backup")
	require.Equal(t, 1, r.Status.RestoreItemOperationsFailed)
	require.Equal(t, []string{"op-2"}, b.cancels.Calls())
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	require.Contains(t, b.readGzip(t, layout.RestoreItemOperations("r")), `"operationID":"op-2"`)
	text := strings.ReplaceAll(b.readGzip(t, layout.RestoreLog("r")), `\`, "")
	require.Contains(t, text, `configmaps a/two: operation "op-2" of action a.io/begins failed: the restore failed: `)
	require.Contains(t, text, "the cancel was refused; it may still be running")
}

// If the records of begun operations cannot be read, the failure reason reports that.
func TestASuccessorThatCannotReadWhatWasBegunSaysSo(t *testing.T) {
	b := orphanedOperation(t)
	b.locations.err = objectstore.ErrAccess
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.getRestore(t).Status.FailureReason, "operations that it began may still be running")
}

// Where no list can be written the restore fails, and its operations are cancelled.
func TestOperationsThatCannotBeSealedAreCancelled(t *testing.T) {
	b, _ := newStartingScene(t)
	b.config.StorePatience, b.config.Clock = time.Second, quick{}
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && key == layout.RestoreOperations("r", "uid-r")+"list" {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.getRestore(t).Status.FailureReason, "seal the operations of the restore")
	require.Equal(t, []string{"op-2"}, b.cancels.Calls())
}

func TestARestoreThatIsGivenUpHasItsOperationsCancelled(t *testing.T) {
	b := orphanedOperation(t)
	b.panickingRuns(t, func() { panic("a defect in opening") })
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Equal(t, "internal error", b.getRestore(t).Status.FailureReason)
	require.Equal(t, []string{"op-2"}, b.cancels.Calls())
	require.Equal(t, object{"size": 1.0}, b.readGadget())
}

// A deleted restore is not taken over: its operations are cancelled before its records are removed, which
// do not wait for a dead bucket for ever.
func TestADeletedRestoreWithoutAHolderHasItsOperationsCancelled(t *testing.T) {
	for _, reachable := range []bool{true, false} {
		t.Run(fmt.Sprint("bucket reachable: ", reachable), func(t *testing.T) {
			b := orphanedOperation(t)
			r := b.getRestore(t)
			mark.ClearPaused(r)
			require.NoError(t, b.client.Update(t.Context(), r))
			require.NoError(t, b.client.Delete(t.Context(), r))
			now := &later{}
			b.config.Clock = now
			if !reachable {
				b.locations.err = objectstore.ErrAccess
			}
			c := newControl(b)
			if reachable {
				require.Zero(t, c.reconcileRestore(t))
				require.Equal(t, []string{"op-2"}, b.cancels.Calls())
				require.Len(t, c.cleaner.cleaned, 1)
				return
			}
			require.Positive(t, c.reconcileRestore(t).RequeueAfter)
			require.Empty(t, c.cleaner.cleaned)
			now.by.Add(int64(2 * b.config.StorePatience))
			require.Zero(t, c.reconcileRestore(t), "its files do not wait for ever")
			require.Len(t, c.cleaner.cleaned, 1)
		})
	}
}

// The files of a deleted restore that waits for operations stay until async-operation-monitor has
// cancelled them, and not for ever.
func TestADeletedRestoreThatWaitsIsLeftToTheMonitor(t *testing.T) {
	b := waitingRestore(t)
	r := b.getRestore(t)
	mark.ClearPaused(r)
	require.NoError(t, b.client.Update(t.Context(), r))
	require.NoError(t, b.client.Delete(t.Context(), r))
	now := &later{}
	b.config.Clock = now
	c := newControl(b)
	now.by.Add(int64(2 * b.config.StorePatience))
	require.Positive(t, c.reconcileRestore(t).RequeueAfter, "what the waits before took is not missing in this one")
	require.Empty(t, c.cleaner.cleaned)
	now.by.Add(int64(b.config.StorePatience))
	require.Zero(t, c.reconcileRestore(t))
	now.by.Store(0)
	require.True(t, b.moveOn(t, "cancelled"))
	require.Zero(t, c.reconcileRestore(t))
	require.Len(t, c.cleaner.cleaned, 2)
	require.Empty(t, b.cancels.Calls())
}

// Where nothing can be recorded no operation can be followed: an action of the SDK is not called,
// and what Velero's begins is an error that names it.
func TestNoOperationIsFollowedWhereNothingCanBeRecorded(t *testing.T) {
	b, _ := newStartingScene(t)
	keys := &keyedStarter{keys: map[string][]string{}}
	actions := b.config.Actions
	b.config.Actions = func(ctx context.Context, note func(joblog.Entry)) job.ActionSet {
		set := actions(ctx, note)
		set.Items = append(set.Items, keys)
		return set
	}
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return objectstore.ErrReadOnly
		}
		return nil
	})
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Empty(t, keys.keys)
	require.Empty(t, b.getRestore(t).Status.RestoreItemOperationsAttempted)
}

// keyedStarter is an action whose calls carry an idempotency key.
type keyedStarter struct {
	mu   sync.Mutex
	keys map[string][]string // by object
	at   func(name string)
}

var _ action.RestoreStarter = &keyedStarter{}

func (*keyedStarter) Name() string          { return "b.io/starts" }
func (*keyedStarter) OperationKind() string { return "AsyncRestoreItemAction" }

func (*keyedStarter) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{"configmaps"}}, nil
}

func (*keyedStarter) Execute(context.Context, *action.Object, *action.Object, *action.Restore) (action.RestoreResult, error) {
	panic("without a key nothing is begun")
}

func (k *keyedStarter) Start(ctx context.Context, o, _ *action.Object, _ *action.Restore, key string) (action.RestoreResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.RestoreResult{}, err
	}
	k.mu.Lock()
	k.keys[id.String()] = append(k.keys[id.String()], key)
	k.mu.Unlock()
	if k.at != nil {
		k.at(id.Name)
	}
	if err := ctx.Err(); err != nil {
		return action.RestoreResult{}, err
	}
	return action.RestoreResult{Object: o, OperationID: "op of " + key, Skip: id.Name == "c000"}, nil
}

// A successor repeats a call that has an idempotency key with the same key: the same key means the
// same operation, and no other call has it. An action that leaves its object out has begun one too.
func TestACallWithAKeyIsRepeatedWithTheSame(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keys := &keyedStarter{keys: map[string][]string{}}
	keys.at = func(name string) {
		if name == "c001" {
			cancel()
			b.claims.LoseClaim() // it dies around the call
		}
	}
	b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{keys}}
	}
	_ = newRunner(b.config).Run(ctx, "r", "uid-r")
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	keys.at = nil
	b.config.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, b.getRestore(t).Status.Phase, b.getRestore(t).Status.FailureReason)
	seen := map[string]string{}
	for id, list := range keys.keys {
		for _, key := range list {
			require.Equal(t, list[0], key, id)
		}
		require.NotContains(t, seen, list[0])
		seen[list[0]] = id
	}
	require.Len(t, keys.keys["ConfigMap a/c001"], 2)
	log := b.openOperations(t)
	require.Len(t, log.Operations(), 3, "each once")
	for _, op := range log.Operations() {
		require.Equal(t, seen[op.Key], "ConfigMap "+op.Item.Namespace+"/"+op.Item.Name)
	}
	require.True(t, b.moveOn(t, ""))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	require.Equal(t, 3, b.getRestore(t).Status.RestoreItemOperationsCompleted)
	require.Contains(t, b.readGzip(t, layout.RestoreResourceList("r")), "a/c000(skipped)")
}
