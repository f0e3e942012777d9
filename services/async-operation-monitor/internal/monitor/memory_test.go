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
		b.start(func(c *monitor.Config, _ *poll.Config) { c.MaxFollowed = 2 })
		for _, name := range []string{"a", "b", "c"} {
			b.job(operation.KindBackup, name, name+"1", name+"2")
			b.pass(3 * time.Second) // they are polled one after the other
		}
		b.pass(time.Minute)
		require.NotZero(b, b.plugins.calls("a1"))
		require.Zero(b, b.plugins.calls("b1"))
		b.edit("c", func(o *velerov1.Backup) { o.Annotations[holdfast.AnnotationCancel] = "alice" })
		b.pass(2 * time.Minute)
		require.Equal(b, velerov1.BackupPhaseFinalizingPartiallyFailed, b.backup("c").Status.Phase)
		require.Zero(b, b.plugins.calls("b1"))
		b.plugins.set("a1", action.Progress{Done: true})
		b.plugins.set("a2", action.Progress{Done: true})
		b.pass(time.Minute)
		require.Equal(b, velerov1.BackupPhaseFinalizing, b.backup("a").Status.Phase)
		require.NotZero(b, b.plugins.calls("b1"))
	})
}

// The operations of a backup whose object was deleted past every request are cancelled, each once,
// by those who followed it; those of a new backup of that name are not.
func TestTheOperationsOfADeletedBackupAreCancelled(t *testing.T) {
	for name, recreated := range map[string]bool{"gone": false, "another of that name": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.plugins.set("done", action.Progress{Done: true})
				o := b.job(operation.KindBackup, "a", "one", "two", "done")
				b.job(operation.KindBackup, "other", "three")
				b.start()
				b.start()
				b.pass(time.Minute)
				require.NoError(b, b.api.Delete(b.Context(), o))
				if recreated {
					o := b.object(operation.KindBackup, "a")
					o.SetUID("new")
					b.sealed(operation.KindBackup, o, "four")
					require.NoError(b, b.api.Create(b.Context(), o))
				}
				b.pass(2 * time.Minute)
				require.ElementsMatch(b, []string{"one", "two"}, b.plugins.cancelled())
				s := b.recorded(operation.KindBackup, "a")
				require.Regexp(b, "^the backup was deleted, (the cancel was acknowledged|the answer to the cancel is not known): stopped$", s[0].Error)
				require.Equal(b, operation.Completed, s[2].Phase)
				asked := b.plugins.calls("one")
				b.pass(10 * time.Minute)
				require.Equal(b, asked, b.plugins.calls("one"), "nothing is asked any more")
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
				b.job(operation.KindBackup, "a", "one")
				b.start()
				b.start()
				b.pass(time.Minute)
				b.edit("a", func(o *velerov1.Backup) { o.Status.Phase = tc.phase })
				b.pass(2 * time.Minute)
				require.Equal(b, tc.told, b.plugins.cancelled())
				if tc.told != nil {
					require.Regexp(b, "^the backup has ended, (the cancel was acknowledged|the answer to the cancel is not known): stopped$", b.recorded(operation.KindBackup, "a")[0].Error)
				}
				asked := b.plugins.calls("one")
				b.pass(10 * time.Minute)
				require.Equal(b, asked, b.plugins.calls("one"), "nothing is asked any more")
				require.Equal(b, tc.phase, b.backup("a").Status.Phase)
			})
		})
	}
}
