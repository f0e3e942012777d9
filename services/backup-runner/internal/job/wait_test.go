package job

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// beginning opens one action that begins an operation for the first configmaps.
type beginning struct {
	count int
	begun atomic.Int32
	asks  string // the configmap that it names as an item to store once operations have ended
}

func (s *beginning) Open(context.Context, *velerov1.Backup, *resource.Catalog, *selection.Filter, func(joblog.Entry), Lock) collect.Actions {
	return collect.Actions{Items: []action.BackupItem{s}, Close: func() {}}
}

func (*beginning) Name() string          { return "a.io/begins" }
func (*beginning) OperationKind() string { return "BackupItemActionV2" }

func (*beginning) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{"configmaps"}}, nil
}

func (s *beginning) Execute(_ context.Context, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	r := action.BackupResult{Object: o}
	id, err := o.Identity()
	if s.asks != "" && b.Backup().Status.Phase != velerov1.BackupPhaseInProgress {
		r.Additional = []action.Item{{Namespace: "a", Name: s.asks}}
		r.Additional[0].Resource = "configmaps"
		return r, err
	}
	for i := range s.count {
		if id.Name == fmt.Sprintf("cm-%02d", i) {
			r.OperationID = "op of " + id.Name
			s.begun.Add(1)
			r.PostOperation = []action.Item{{Namespace: "a", Name: "made"}}
			r.PostOperation[0].Resource = "configmaps"
		}
	}
	return r, err
}

// newWaitingBackup runs a backup until it waits for two operations.
func newWaitingBackup(t *testing.T) (*world, *velerov1.Backup, *operation.Log) {
	t.Helper()
	w := newWorld(t)
	w.Actions = &beginning{count: 2}
	w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "made", Body: map[string]any{"data": map[string]any{"state": "begun"}}})
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseWaitingForPluginOperations, got.Status.Phase, got.Status.FailureReason)
	require.Equal(t, 2, got.Status.BackupItemOperationsAttempted)
	require.Equal(t, 52, got.Status.Progress.ItemsBackedUp)
	require.Nil(t, got.Status.CompletionTimestamp)
	c, claimed, err := claim.Parse(got)
	require.NoError(t, err)
	require.True(t, claimed)
	require.Empty(t, c.Owner, "another may take it at once")
	_, committed := w.store.Bytes(layout.BackupMetadata("b1"))
	require.False(t, committed)
	log, err := operation.Open(t.Context(), w.store, operation.Job{Kind: operation.KindBackup, Name: "b1", UID: string(b.UID)})
	require.NoError(t, err)
	require.Len(t, log.Operations(), 2)
	return w, b, log
}

// moveOn ends operations, with an error of the second one, as async-operation-monitor does.
func (w *world) moveOn(t *testing.T, b *velerov1.Backup, log *operation.Log, failure string) {
	t.Helper()
	at := time.Unix(1700000100, 0).UTC()
	require.NoError(t, log.Append(t.Context(),
		operation.Event{Operation: 0, Time: at, End: &operation.End{Progress: operation.Progress{Completed: 3, Total: 3, Units: "Bytes"}}},
		operation.Event{Operation: 1, Time: at, End: &operation.End{Error: failure}}))
	got := w.readBackup(t, b)
	got.Status.Phase = velerov1.BackupPhaseFinalizing
	if failure != "" {
		got.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
	}
	require.NoError(t, w.client.Update(t.Context(), got))
}

// A backup whose actions began operations gives its claim away until they have ended; then what
// they named is stored as it is by then, and a failed one is an error that names item, action and
// operation.
func TestABackupWaitsForItsOperations(t *testing.T) {
	for name, failure := range map[string]string{"all complete": "", "one fails": "no space left"} {
		t.Run(name, func(t *testing.T) {
			w, b, log := newWaitingBackup(t)
			w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "made", Body: map[string]any{"data": map[string]any{"state": "done"}}})
			w.moveOn(t, b, log, failure)
			require.NoError(t, w.anotherRunner(t, "other").Run(t.Context(), "b1", b.UID))

			phase, failed := velerov1.BackupPhaseCompleted, 0
			if failure != "" {
				phase, failed = velerov1.BackupPhasePartiallyFailed, 1
			}
			got := w.requireComplete(t, b, phase)
			s := got.Status
			require.Equal(t, []int{2, 2 - failed, failed, failed}, []int{s.BackupItemOperationsAttempted, s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed, s.Errors})
			require.Equal(t, 52, s.Progress.ItemsBackedUp, "what is stored again counts once")
			var list []struct{ Spec, Status map[string]any }
			require.NoError(t, json.Unmarshal([]byte(w.readDocument(t, layout.BackupItemOperations("b1"))), &list))
			require.Equal(t, "op of cm-00", list[0].Spec["operationID"])
			require.Equal(t, "Completed", list[0].Status["phase"])
			require.InDelta(t, 3, list[0].Status["nTotal"], 0)
			require.Contains(t, w.readDocument(t, layout.BackupTarball("b1")), `"state":"done"`)
			if failure == "" {
				return
			}
			require.Equal(t, "Failed", list[1].Status["phase"])
			for _, key := range []string{layout.BackupResults("b1"), layout.BackupLog("b1")} {
				for _, what := range []string{"op of cm-01", "a.io/begins", "configmaps", "no space left"} {
					require.Contains(t, w.readDocument(t, key), what)
				}
			}
		})
	}
}

// A holder that dies in any write on the way from the operations' end to the backup's is followed
// by one that comes to the same end.
func TestASuccessorEndsABackupWithOperations(t *testing.T) {
	for n := 1; ; n++ {
		w, b, log := newWaitingBackup(t)
		w.moveOn(t, b, log, "")
		dying := w.anotherRunner(t, "dying")
		p := dying.mortalRunner(n)
		err := dying.Run(t.Context(), "b1", b.UID)
		if !p.hasDied() {
			require.NoError(t, err)
			require.Greater(t, n, 15, "the end was cut at many points")
			return
		}
		w.store.Inject(nil)
		require.NoError(t, w.anotherRunner(t, "next").Run(t.Context(), "b1", b.UID), "cut at write %d", n)
		w.sweepLeftovers(t, b)
		got := w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
		require.Equal(t, 52, got.Status.Progress.ItemsBackedUp)
		require.Contains(t, w.readDocument(t, layout.BackupTarball("b1")), `"state":"begun"`)
	}
}

// A backup waits again whose operations have ended by its phase, and not by the records.
func TestABackupWaitsAgainForWhatHasNotEnded(t *testing.T) {
	w, b, _ := newWaitingBackup(t)
	got := w.readBackup(t, b)
	got.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
	require.NoError(t, w.client.Update(t.Context(), got))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed, w.readBackup(t, b).Status.Phase, "an error before stays one")
}

// Once its operations have ended, a backup that was asked to cancel ends as Failed, and the bucket
// lists its operations for delete item actions.
func TestACancelledBackupListsItsOperations(t *testing.T) {
	w, b, log := newWaitingBackup(t)
	w.moveOn(t, b, log, "cancelled")
	got := w.readBackup(t, b)
	require.NoError(t, mark.WriteCancelRequest(got, mark.CancelRequest{By: "alice"}))
	require.NoError(t, w.client.Update(t.Context(), got))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got = w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
	require.Contains(t, w.readDocument(t, layout.BackupItemOperations("b1")), "op of cm-01")
}

// A cancelled backup that queue-scheduler took out of its wait ends, whether its operations have ended or not, and whatever the
// time that the bucket takes to answer.
func TestACancelledBackupEndsAlthoughOperationsDoNot(t *testing.T) {
	w, b, _ := newWaitingBackup(t)
	got := w.readBackup(t, b)
	require.NoError(t, mark.WriteCancelRequest(got, mark.CancelRequest{By: "alice"}))
	got.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
	require.NoError(t, w.client.Update(t.Context(), got))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got = w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
	require.Equal(t, 2, got.Status.BackupItemOperationsFailed)
	require.Equal(t, []string{"op of cm-00", "op of cm-01"}, w.cancels.Calls())
	require.Contains(t, w.readDocument(t, layout.BackupItemOperations("b1")), "op of cm-01")
}

// A backup in Finalizing whose list of operations was damaged fails with that reason.
func TestADamagedListOfOperationsFailsTheBackup(t *testing.T) {
	w, b, _ := newWaitingBackup(t)
	w.store.Set(layout.BackupOperations("b1", string(b.UID))+"list", []byte("{"))
	got := w.readBackup(t, b)
	got.Status.Phase = velerov1.BackupPhaseFinalizing
	require.NoError(t, w.client.Update(t.Context(), got))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got = w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Contains(t, got.Status.FailureReason, "operations of Backup b1")
}

// A backup that is cancelled, or fails, before its list of operations is sealed has its operations
// cancelled, and ends without waiting for them. One that cannot be cancelled is named in log and results.
func TestAFailedCollectionCancelsItsOperations(t *testing.T) {
	refused := func(*world, *velerov1.Backup) error { return objectstore.ErrAccess }
	for name, tc := range map[string]struct {
		at    string
		fails func(w *world, b *velerov1.Backup) error
	}{
		"cancelled":        {".sidecar", func(w *world, b *velerov1.Backup) error { w.requestCancel(t, b, true); return objectstore.ErrAccess }},
		"part lost":        {".sidecar", refused},
		"composition lost": {"/composition", refused},
		"list lost":        {"/operations/list", refused},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cancels.Answer = func(_ context.Context, op action.Operation) (bool, error) { return op.ID != "op of cm-01", nil }
			begins := &beginning{count: 2}
			w.Actions = begins
			b := w.admitBackup(t, "b1")
			var once sync.Once
			w.store.Inject(func(op memstore.Op, key string) (err error) {
				if begins.begun.Load() == 2 && op == memstore.OpCreate && strings.HasSuffix(key, tc.at) {
					once.Do(func() { err = tc.fails(w, b) })
				}
				return err
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase, got.Status.FailureReason)
			require.Equal(t, []int{2, 2}, []int{got.Status.BackupItemOperationsAttempted, got.Status.BackupItemOperationsFailed})
			require.Equal(t, []string{"op of cm-00", "op of cm-01"}, w.cancels.Calls())
			require.Contains(t, w.readDocument(t, layout.BackupItemOperations("b1")), "the backup failed: "+got.Status.FailureReason+", the cancel was acknowledged")
			for _, key := range []string{layout.BackupResults("b1"), layout.BackupLog("b1")} {
				for _, what := range []string{"op of cm-01", "a.io/begins", "the cancel was refused; it may still be running"} {
					require.Contains(t, w.readDocument(t, key), what)
				}
			}
		})
	}
}

// The namespaces that the backup was admitted for count when items are stored again: no additional
// item was in them, and all were left out without a message.
func TestWhatActionsAskForIsStoredAgainWithTheItem(t *testing.T) {
	w, b, log := newWaitingBackup(t)
	w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "late"})
	w.moveOn(t, b, log, "")
	next := w.anotherRunner(t, "other")
	next.Actions = &beginning{asks: "late"}
	require.NoError(t, next.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	require.Contains(t, w.readDocument(t, layout.BackupManifest("b1")), `"late"`)
}
