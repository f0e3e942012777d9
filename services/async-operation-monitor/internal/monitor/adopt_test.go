package monitor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// foreign is an operation in the file of another server.
func foreign(id, name, phase string) itemoperation.Operation {
	return itemoperation.Operation{
		Spec:   itemoperation.Spec{BackupAction: name, ID: id, Resource: itemoperation.Resource{Resource: "pods", Namespace: "n", Name: id}},
		Status: itemoperation.Status{Phase: phase},
	}
}

// adopting starts a replica beside the operations that another server left, of which those of
// vendor.io/a can be asked about.
func (b *bed) adopting(operations ...itemoperation.Operation) *replica {
	b.Helper()
	return b.start(func(c *monitor.Config, _ *poll.Config) {
		c.Files, c.Actions = files{list: list{operations: operations}, store: b.store}, here{"vendor.io/a": true}
	})
}

// left creates a job that another server left waiting.
func (b *bed) left(kind, name string, phase velerov1.BackupPhase) client.Object {
	b.Helper()
	o := b.object(kind, name)
	o.SetAnnotations(nil)
	began := metav1.Now()
	switch o := o.(type) {
	case *velerov1.Backup:
		o.Status.Phase, o.Status.StartTimestamp = phase, &began
	case *velerov1.Restore:
		o.Status.Phase, o.Status.StartTimestamp = velerov1.RestorePhase(phase), &began
	}
	require.NoError(b, b.api.Create(b.Context(), o))
	return o
}

// phase is that of a job, with its counts of operations.
func (b *bed) phase(o client.Object) (phase velerov1.BackupPhase, completed, failed int) {
	b.Helper()
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(o), o))
	if r, ok := o.(*velerov1.Restore); ok {
		return velerov1.BackupPhase(r.Status.Phase), r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed
	}
	s := &o.(*velerov1.Backup).Status
	return s.Phase, s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed
}

// Operations of another server counted as failed although their plugin was here and they went on.
func TestOperationsOfAnotherServerAreFollowed(t *testing.T) {
	const here, away = "vendor.io/a", "vendor.io/b"
	for name, tc := range map[string]struct {
		phase, meanwhile, want velerov1.BackupPhase
		list                   []itemoperation.Operation
		ends                   string // what the operation that is followed ends with
		completed, failed      int
	}{
		"one completes": {
			phase: waiting, meanwhile: waiting, want: velerov1.BackupPhaseFinalizing, completed: 2,
			list: []itemoperation.Operation{foreign("done", away, "Completed"), foreign("op", here, "InProgress")},
		},
		"one fails": {
			phase: waiting, meanwhile: waiting, want: finalPF, completed: 1, failed: 1, ends: "no space",
			list: []itemoperation.Operation{foreign("done", here, "Completed"), foreign("op", here, "New")},
		},
		"another one has no plugin here": {
			phase: waiting, meanwhile: waitingPF, want: finalPF, completed: 1, failed: 1,
			list: []itemoperation.Operation{foreign("lost", away, "InProgress"), foreign("op", here, "InProgress")},
		},
		"another one has failed before": {
			phase: waitingPF, meanwhile: waitingPF, want: finalPF, completed: 1, failed: 1,
			list: []itemoperation.Operation{foreign("broken", away, "Failed"), foreign("op", here, "InProgress")},
		},
	} {
		for _, kind := range []string{operation.KindBackup, operation.KindRestore} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					o := b.left(kind, "x", tc.phase)
					r := b.adopting(tc.list...)
					b.pass(2 * frequency)
					phase, _, _ := b.phase(o)
					require.Equal(b, tc.meanwhile, phase, "it waits for the one that continues")
					require.Zero(b, b.plugins.calls(tc.list[0].Spec.ID), "only that one is asked about")
					r.stop()
					b.adopting(tc.list...) // the next replica continues
					b.plugins.set("op", action.Progress{Done: true, Err: tc.ends})
					b.pass(2 * frequency)
					phase, completed, failed := b.phase(o)
					require.Equal(b, tc.want, phase)
					require.Equal(b, []int{tc.completed, tc.failed}, []int{completed, failed})
					states := b.recorded(kind, "x")
					require.Equal(b, tc.ends, states[1].Error)
				})
			})
		}
	}
}

// What a file names twice is one operation: it was polled twice as often, and cancelled twice.
func TestAnOperationThatAnotherServerListsTwiceIsFollowedOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		o := b.left(operation.KindBackup, "x", waiting)
		b.adopting(foreign("op", "vendor.io/a", "InProgress"), foreign("other", "vendor.io/a", "New"), foreign("op", "vendor.io/a", "New"))
		b.pass(time.Second)
		require.Len(b, b.recorded(operation.KindBackup, "x"), 2)
		b.edit("x", func(o *velerov1.Backup) { o.Annotations = map[string]string{holdfast.AnnotationCancel: "ann"} })
		b.pass(2 * frequency)
		require.ElementsMatch(b, []string{"op", "other"}, b.plugins.cancelled())
		phase, _, failed := b.phase(o)
		require.Equal(b, finalPF, phase)
		require.Equal(b, 2, failed)
	})
}

// Operations of another server that are given up leave an Event with the reason.
func TestOperationsOfAnotherServerAreNotGivenUpInSilence(t *testing.T) {
	long := foreign("done", "vendor.io/a", "Completed")
	long.Status.Description = strings.Repeat("<", 900<<10)
	for name, tc := range map[string]struct {
		list   []itemoperation.Operation
		reason string
	}{
		"not known whether the action is here": {[]itemoperation.Operation{foreign("op", "unclear.io/a", "InProgress")}, `look for action "unclear.io/a": a binary was not asked yet`},
		"too many":                             {[]itemoperation.Operation{foreign("op", "vendor.io/a", "InProgress"), long, long, long, long}, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				o := b.left(operation.KindBackup, "x", waiting)
				b.adopting(tc.list...)
				b.pass(5 * time.Hour)
				phase, _, _ := b.phase(o)
				require.Equal(b, finalPF, phase)
				told := strings.Join(b.events.told(), "\n")
				require.Contains(b, told, "x OperationsUnknown: the operations cannot be followed: ")
				require.Contains(b, told, tc.reason)
				require.Zero(b, b.plugins.calls("op"))
			})
		})
	}
}

// An operation that the file of another server dates in the future never timed out.
func TestOperationsOfAnotherServerTimeOutWhateverTheirFileTells(t *testing.T) {
	inBubble(t, func(b *bed) {
		o := b.left(operation.KindBackup, "x", waiting)
		op := foreign("op", "vendor.io/a", "InProgress")
		op.Status.Created = ptr(metav1.NewTime(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)))
		b.adopting(op)
		b.pass(5 * time.Hour)
		phase, _, failed := b.phase(o)
		require.Equal(b, finalPF, phase)
		require.Equal(b, 1, failed)
	})
}

// A request to stop a job of another server cancels what continues.
func TestOperationsOfAnotherServerAreCancelled(t *testing.T) {
	inBubble(t, func(b *bed) {
		o := b.left(operation.KindBackup, "x", waiting)
		b.adopting(foreign("op", "vendor.io/a", "InProgress"))
		b.pass(time.Second)
		b.edit("x", func(o *velerov1.Backup) { o.Annotations = map[string]string{holdfast.AnnotationCancel: "ann"} })
		b.pass(2 * frequency)
		require.Equal(b, []string{"op"}, b.plugins.cancelled())
		phase, _, failed := b.phase(o)
		require.Equal(b, finalPF, phase)
		require.Equal(b, 1, failed)
	})
}

// A binary that could not be asked what it registers may have the action, and a bucket that is away
// may have the records: neither gives up operations that continue.
func TestOperationsOfAnotherServerAreNotGivenUpEarly(t *testing.T) {
	inBubble(t, func(b *bed) {
		unclear, away := b.left(operation.KindBackup, "unclear", waiting), b.left(operation.KindRestore, "away", waiting)
		r := b.adopting(foreign("op", "unclear.io/a", "InProgress"))
		b.pass(2 * frequency)
		phase, _, _ := b.phase(unclear)
		require.Equal(b, waiting, phase)
		r.stop()

		b.store.Inject(func(memstore.Op, string) error { return errors.New("away") })
		r = b.adopting(foreign("op", "vendor.io/a", "InProgress"))
		b.pass(2 * frequency)
		phase, _, _ = b.phase(away)
		require.Equal(b, waiting, phase)
		r.stop()

		b.store.Inject(nil)
		b.adopting(foreign("op", "vendor.io/a", "InProgress"))
		b.plugins.set("op", action.Progress{Done: true})
		b.pass(2 * frequency)
		phase, completed, _ := b.phase(away)
		require.Equal(b, velerov1.BackupPhaseFinalizing, phase)
		require.Equal(b, 1, completed)
	})
}

// The list of a restore stayed in the bucket for good when the Restore was deleted: the sweep did not
// know whose it is. A backup has its directory.
func TestTheListOfAnInheritedRestoreNamesItsCluster(t *testing.T) {
	for kind, owned := range map[string]bool{operation.KindRestore: true, operation.KindBackup: false} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				o := b.left(kind, "x", waiting)
				b.plugins.set("op-1", action.Progress{})
				b.adopting(foreign("op-1", "vendor.io/a", "InProgress"))
				job := operation.Job{Kind: kind, Name: "x", UID: string(o.GetUID())}
				b.pass(2 * frequency)
				_, err := operation.Sealed(b.Context(), b.store, job)
				require.NoError(b, err)
				data, ok := b.store.Bytes(layout.RestoreOperationsOwnerFile("x", job.UID))
				require.Equal(b, owned, ok)
				if owned {
					owner, err := layout.DecodeRestoreOwner(data)
					require.NoError(b, err)
					require.Equal(b, layout.RestoreOwner{RestoreUID: job.UID, ClusterUID: "cluster-1"}, owner)
				}
			})
		})
	}
}
