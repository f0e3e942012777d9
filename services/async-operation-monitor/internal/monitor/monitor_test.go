package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

func TestJobsMoveOnWhenNoOperationIsLeft(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "fine", "f1", "f2")
		b.createJob(operation.KindBackup, "none")
		r := b.createJob(operation.KindRestore, "bad", "b1", "b2")
		b.startReplica()
		b.advanceClock(time.Second)
		require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("none").Status.Phase)
		b.advanceClock(time.Minute)
		require.Equal(b, waiting, b.readBackup("fine").Status.Phase)
		require.Equal(b, 7, b.plugins.countCalls("f1"), "at once, and every ten seconds")
		b.plugins.setProgress("f1", action.Progress{Done: true})
		b.plugins.setProgress("b1", action.Progress{Done: true, Err: "no"})
		b.advanceClock(frequency)
		fine := b.readBackup("fine")
		require.Equal(b, waiting, fine.Status.Phase)
		require.Equal(b, 1, fine.Status.BackupItemOperationsCompleted)
		sum, ok, err := operation.ReadSummary(fine)
		require.NoError(b, err)
		require.True(b, ok)
		require.Equal(b, []int{2, 1, 0, 1}, []int{sum.Total, sum.Completed, sum.Failed, len(sum.Running)})
		restore := &velerov1.Restore{}
		require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(r), restore))
		require.Equal(b, velerov1.RestorePhase(waitingPF), restore.Status.Phase)

		b.plugins.setProgress("f2", action.Progress{Done: true})
		b.plugins.setProgress("b2", action.Progress{Done: true})
		b.advanceClock(frequency)
		fine = b.readBackup("fine")
		require.Equal(b, velerov1.BackupPhaseFinalizing, fine.Status.Phase)
		require.Equal(b, 2, fine.Status.BackupItemOperationsCompleted)
		require.JSONEq(b, `{"total":2,"completed":2,"failed":0}`, fine.Annotations[holdfast.AnnotationOperations])
		require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(r), restore))
		require.Equal(b, velerov1.RestorePhase(finalPF), restore.Status.Phase)
		require.Equal(b, []int{1, 1}, []int{restore.Status.RestoreItemOperationsCompleted, restore.Status.RestoreItemOperationsFailed})
		before := b.bus.countDelivered()
		b.advanceClock(time.Minute)
		require.Equal(b, before, b.bus.countDelivered(), "the hint is done with")
		require.Empty(b, b.events.recordedEvents())
	})
}

// A bus that is away, or loses what it took, delays polls only.
func TestJobsArePolledWithoutMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		down, swallows bool
		pause          time.Duration
	}{
		"refused": {down: true, pause: frequency},
		"lost":    {swallows: true, pause: 3 * frequency},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.bus.setFaults(tc.down, tc.swallows)
				b.createJob(operation.KindBackup, "j", "a")
				b.startReplica()
				b.advanceClock(time.Minute)
				require.InDelta(b, time.Minute/tc.pause, b.plugins.countCalls("a"), 1)
				b.bus.setFaults(false, false)
				b.advanceClock(time.Minute)
				before := b.plugins.countCalls("a")
				b.advanceClock(time.Minute)
				require.InDelta(b, 6, b.plugins.countCalls("a")-before, 1, "by its hint again, and not twice")
				b.bus.setFaults(tc.down, tc.swallows)
				b.plugins.setProgress("a", action.Progress{Done: true})
				b.advanceClock(tc.pause + frequency + time.Second)
				require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("j").Status.Phase)
			})
		})
	}
}

func TestTwoReplicasShareTheWork(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", "a", "c")
		one := b.startReplica()
		b.startReplica()
		b.advanceClock(10 * time.Minute)
		require.InDelta(b, 60, b.plugins.countCalls("a"), 30, "by one hint, whatever the number of replicas")
		one.stop()
		b.plugins.setProgress("a", action.Progress{Done: true})
		b.advanceClock(time.Minute)
		require.Equal(b, operation.Completed, b.recordedStates(operation.KindBackup, "j")[0].Phase)
		b.editBackup("j", func(o *velerov1.Backup) { o.Annotations[holdfast.AnnotationCancel] = "alice" })
		b.startReplica()
		b.advanceClock(grace)
		require.Equal(b, []string{"c"}, b.plugins.cancelledIDs())
		require.Equal(b, finalPF, b.readBackup("j").Status.Phase)
	})
}

// The operations of a cancelled job are cancelled at once, not with the next poll.
func TestACancelledJobMovesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		stop func(b *bed)
		kind string
	}{
		"asked": {func(b *bed) {
			b.editBackup("j", func(o *velerov1.Backup) { o.Annotations[holdfast.AnnotationCancel] = "alice" })
		}, ""},
		"deleted": {func(b *bed) { require.NoError(b, b.api.Delete(b.Context(), b.readBackup("j"))) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.createJob(operation.KindBackup, "j", "a", "c")
				b.editBackup("j", func(o *velerov1.Backup) { o.Finalizers = []string{"test/keep"} })
				b.plugins.setProgress("a", action.Progress{Done: true})
				b.startReplica()
				b.advanceClock(time.Second)
				tc.stop(b)
				b.advanceClock(time.Second)
				require.Equal(b, []string{"c"}, b.plugins.cancelledIDs())
				b.advanceClock(frequency)
				require.Equal(b, finalPF, b.readBackup("j").Status.Phase)
				states := b.recordedStates(operation.KindBackup, "j")
				require.Equal(b, operation.Completed, states[0].Phase)
				require.Equal(b, "the backup is cancelled, the cancel was acknowledged: stopped", states[1].Error)
			})
		})
	}
}

func TestTheTimeoutIsThatOfTheJob(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "given", "a")
		b.editBackup("given", func(o *velerov1.Backup) { o.Spec.ItemOperationTimeout.Duration = 10 * time.Minute })
		b.createJob(operation.KindRestore, "default", "c")
		b.startReplica()
		b.advanceClock(11 * time.Minute)
		require.Equal(b, "timed out after 10m0s, the cancel was acknowledged: stopped", b.recordedStates(operation.KindBackup, "given")[0].Error)
		require.Equal(b, operation.New, b.recordedStates(operation.KindRestore, "default")[0].Phase)
		b.advanceClock(4 * time.Hour)
		require.Equal(b, "timed out after 4h0m0s, the cancel was acknowledged: stopped", b.recordedStates(operation.KindRestore, "default")[0].Error)
	})
}

// The annotation is written every ten seconds at most, although an operation is polled each second.
func TestProgressIsNotedNowAndThen(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", "a")
		b.startReplica(func(_ *monitor.Config, c *poll.Config) {
			c.Frequencies = map[string]time.Duration{"vendor.io/a": time.Second}
		})
		b.advanceClock(time.Second)
		before := b.readBackup("j").ResourceVersion
		versions := map[string]bool{before: true}
		for i := range 60 {
			b.plugins.setProgress("a", action.Progress{Completed: int64(i)})
			b.advanceClock(time.Second)
			versions[b.readBackup("j").ResourceVersion] = true
		}
		require.InDelta(b, 7, len(versions), 1)
		require.InDelta(b, 60, b.plugins.countCalls("a"), 2)
		sum, _, err := operation.ReadSummary(b.readBackup("j"))
		require.NoError(b, err)
		require.InDelta(b, 55, sum.Running[0].Completed, 6)
	})
}

func TestEventsAboutStallsAreBounded(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", strings.Split("abcdefghijk", "")...)
		b.startReplica(func(_ *monitor.Config, c *poll.Config) { c.Stall = 30 * time.Minute })
		b.advanceClock(time.Hour)
		require.Len(b, b.events.recordedEvents(), 6, "each is reported once")
		require.Equal(b, `j OperationStalled: operation "a" of action "vendor.io/a" for pods n/a: no progress for 30m0s`, b.events.recordedEvents()[0])
		require.Equal(b, "j OperationStalled: 6 more operations made no progress", b.events.recordedEvents()[5])
	})
}

// A list that is not there, or cannot be understood, is never "no operations".
func TestAJobWhoseOperationsAreUnknownMovesOnAsFailed(t *testing.T) {
	key := layout.BackupOperations("j", "j-uid") + "list"
	for name, spoil := range map[string]func(b *bed, f *files){
		"no list": func(b *bed, _ *files) { require.NoError(b, b.store.Delete(b.Context(), key)) },
		"damaged": func(b *bed, _ *files) { b.store.Set(key, []byte("[")) },
		"a record is": func(b *bed, _ *files) {
			b.store.Set(layout.BackupOperations("j", "j-uid")+"record-0000000001", []byte("["))
		},
		"no location": func(_ *bed, f *files) {
			f.err = fmt.Errorf("location: %w", apierrors.NewNotFound(schema.GroupResource{Group: "velero.io", Resource: "backupstoragelocations"}, "main"))
		},
		"no backup": func(_ *bed, f *files) { f.err = fmt.Errorf("backup: %w", errgrpc.ErrNotFound) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.createJob(operation.KindBackup, "j", "a")
				f := files{store: b.store}
				spoil(b, &f)
				b.startReplica(func(c *monitor.Config, _ *poll.Config) { c.Files = f })
				b.advanceClock(time.Second)
				require.Equal(b, finalPF, b.readBackup("j").Status.Phase)
				require.Len(b, b.events.recordedEvents(), 1)
				require.Contains(b, b.events.recordedEvents()[0], "j OperationsUnknown: the operations cannot be followed: ")
			})
		})
	}
}

// A bucket that is away, or a Secret that is, comes back: the job waits.
func TestAJobWaitsForItsBucket(t *testing.T) {
	for name, err := range map[string]error{
		"away":      errors.New("connection refused"),
		"no bucket": objectstore.ErrNoBucket,
		"no secret": apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "credentials"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.createJob(operation.KindBackup, "j", "a")
				b.plugins.setProgress("a", action.Progress{Done: true})
				b.store.Inject(func(memstore.Op, string) error { return err })
				b.startReplica()
				b.advanceClock(time.Hour)
				require.Equal(b, waiting, b.readBackup("j").Status.Phase)
				b.store.Inject(nil)
				b.advanceClock(frequency + time.Second)
				require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("j").Status.Phase)
			})
		})
	}
}

// Nothing can be recorded in a location that became read-only. It may be writable again, so the job
// waits, for as long as its operations may take.
func TestAJobWaitsForItsLocationToBeWritableForABoundedTime(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", "a")
		b.editBackup("j", func(o *velerov1.Backup) {
			began := metav1.Now()
			o.Status.StartTimestamp = &began
			o.Spec.ItemOperationTimeout.Duration = time.Hour
		})
		b.plugins.setProgress("a", action.Progress{Done: true})
		b.store.Inject(func(op memstore.Op, _ string) error {
			if op == memstore.OpPut || op == memstore.OpCreate {
				return objectstore.ErrReadOnly
			}
			return nil
		})
		b.startReplica()
		b.advanceClock(time.Hour)
		require.Equal(b, waiting, b.readBackup("j").Status.Phase)
		b.advanceClock(grace + 2*frequency)
		require.Equal(b, finalPF, b.readBackup("j").Status.Phase)
		require.Contains(b, b.events.recordedEvents()[0], "read-only")
	})
}

// Another object has the name: its operations are not those of the hint.
func TestAHintOfAnotherObjectIsDone(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", "a")
		r := b.startReplica()
		b.advanceClock(time.Second)
		hint := func(kind, namespace, uid string) messaging.Outcome {
			return r.Handle(b.Context(), &workv1.Hint{Kind: kind, Namespace: namespace, Name: "j", Uid: uid})
		}
		require.False(b, hint("Backup", namespace, "other").Retries())
		require.True(b, hint("Backup", namespace, "j-uid").Retries())
		require.Equal(b, messaging.Done(), hint("Restore", namespace, "j-uid"))
		require.NotEqual(b, messaging.Done(), hint("Backup", "elsewhere", "j-uid"), "a dead letter")
		require.NotEqual(b, messaging.Done(), hint("DeleteBackupRequest", namespace, "j-uid"), "a dead letter")
	})
}

// A poll that panics costs its own job a while.
func TestAPollThatPanicsIsTriedAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "j", "a")
		b.createJob(operation.KindBackup, "k", "c")
		b.plugins.setProgress("a", action.Progress{Done: true})
		b.plugins.setProgress("c", action.Progress{Done: true})
		var panics atomic.Bool
		panics.Store(true)
		b.startReplica(func(c *monitor.Config, _ *poll.Config) { c.Files = panicking{files{store: b.store}, &panics} })
		b.advanceClock(time.Minute)
		require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("k").Status.Phase)
		require.Equal(b, waiting, b.readBackup("j").Status.Phase)
		panics.Store(false)
		b.advanceClock(frequency + time.Second)
		require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("j").Status.Phase)
	})
}

type panicking struct {
	files
	panics *atomic.Bool
}

// Store implements monitor.Files.
func (p panicking) Store(ctx context.Context, job client.Object) (objectstore.Store, error) {
	if job.GetName() == "j" && p.panics.Load() {
		panic("boom")
	}
	return p.files.Store(ctx, job)
}
