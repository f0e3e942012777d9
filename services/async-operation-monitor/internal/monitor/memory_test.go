package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// A job waits while other jobs have as many operations as are followed. One that is to stop does not.
func TestAJobWaitsWhileTooManyOperationsAreFollowed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica(func(c *monitor.Config, _ *poll.Config) { c.MaxFollowed = 2 })
		for _, name := range []string{"a", "b", "c"} {
			b.createJob(operation.KindBackup, name, name+"1", name+"2")
			b.advanceClock(3 * time.Second) // they are polled one after the other
		}
		b.advanceClock(time.Minute)
		require.NotZero(b, b.plugins.countCalls("a1"))
		require.Zero(b, b.plugins.countCalls("b1"))
		b.editBackup("c", func(o *velerov1.Backup) { o.Annotations[holdfast.AnnotationCancel] = "alice" })
		b.advanceClock(2 * time.Minute)
		require.Equal(b, velerov1.BackupPhaseFinalizingPartiallyFailed, b.readBackup("c").Status.Phase)
		require.Zero(b, b.plugins.countCalls("b1"))
		b.plugins.setProgress("a1", action.Progress{Done: true})
		b.plugins.setProgress("a2", action.Progress{Done: true})
		b.advanceClock(time.Minute)
		require.Equal(b, velerov1.BackupPhaseFinalizing, b.readBackup("a").Status.Phase)
		require.NotZero(b, b.plugins.countCalls("b1"))
	})
}

// The operations of a backup whose object was deleted past every request are cancelled, each once,
// by those who followed it; those of a new backup of that name are not.
func TestTheOperationsOfADeletedBackupAreCancelled(t *testing.T) {
	for name, recreated := range map[string]bool{"gone": false, "another of that name": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.plugins.setProgress("done", action.Progress{Done: true})
				o := b.createJob(operation.KindBackup, "a", "one", "two", "done")
				b.createJob(operation.KindBackup, "other", "three")
				b.startReplica()
				b.startReplica()
				b.advanceClock(time.Minute)
				require.NoError(b, b.api.Delete(b.Context(), o))
				if recreated {
					o := b.readObject(operation.KindBackup, "a")
					o.SetUID("new")
					b.sealOperations(operation.KindBackup, o, "four")
					require.NoError(b, b.api.Create(b.Context(), o))
				}
				b.advanceClock(2 * time.Minute)
				require.ElementsMatch(b, []string{"one", "two"}, b.plugins.cancelledIDs())
				s := b.recordedStates(operation.KindBackup, "a")
				require.Regexp(b, "^the backup was deleted, (the cancel was acknowledged|the answer to the cancel is not known): stopped$", s[0].Error)
				require.Equal(b, operation.Completed, s[2].Phase)
				asked := b.plugins.countCalls("one")
				b.advanceClock(10 * time.Minute)
				require.Equal(b, asked, b.plugins.countCalls("one"), "nothing is asked any more")
			})
		})
	}
}

// A job that another client sets to a terminal phase leaves no operation running: each is
// cancelled, once. One that moves on as usual is left to its runner.
func TestTheOperationsOfAJobThatIsEndedOverThemAreCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		phase velerov1.BackupPhase
		told  []string
	}{
		"ended": {velerov1.BackupPhaseFailed, []string{"one"}}, "moved on": {velerov1.BackupPhaseFinalizing, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.createJob(operation.KindBackup, "a", "one")
				b.startReplica()
				b.startReplica()
				b.advanceClock(time.Minute)
				b.editBackup("a", func(o *velerov1.Backup) { o.Status.Phase = tc.phase })
				b.advanceClock(2 * time.Minute)
				require.Equal(b, tc.told, b.plugins.cancelledIDs())
				if tc.told != nil {
					require.Regexp(b, "^the backup has ended, (the cancel was acknowledged|the answer to the cancel is not known): stopped$", b.recordedStates(operation.KindBackup, "a")[0].Error)
				}
				asked := b.plugins.countCalls("one")
				b.advanceClock(10 * time.Minute)
				require.Equal(b, asked, b.plugins.countCalls("one"), "nothing is asked any more")
				require.Equal(b, tc.phase, b.readBackup("a").Status.Phase)
			})
		})
	}
}
