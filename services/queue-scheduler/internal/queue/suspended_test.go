package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// The entry of a running backup goes with its object, and another backup of the same namespaces
// starts while the runner of the first one works on: it has not seen yet that its object is gone.
func TestADeletedBackupKeepsItsEntryUntilItsRunnerHasStopped(t *testing.T) {
	for name, released := range map[string]bool{"the claim timeout passes": false, "its runner says so": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
			s, now := b.newScheduler(func(c *queue.Config) { c.ClaimTimeout = claimTimeout }), b.clock
			b.createBackup("first", 1, "ns1")
			b.createBackup("second", 2, "ns1")
			require.NoError(t, s.Pass(t.Context()))
			b.setPhase("first", velerov1.BackupPhaseInProgress)
			require.NoError(t, b.c.Delete(t.Context(), b.getBackup("first")))
			now.Step(time.Hour)
			require.NoError(t, s.Pass(t.Context()))
			require.Equal(t, []string{"first"}, b.admittedNames())
			if released {
				require.NoError(t, b.ledger.Release(t.Context(), "uid-first"))
			} else {
				now.Step(29 * time.Second)
				require.NoError(t, s.Pass(t.Context()))
				require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("second"))
				now.Step(time.Second)
			}
			require.NoError(t, s.Pass(t.Context()))
			require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("second"))
		})
	}
}

// suspendBackup does what a runner does whose bucket is away.
func (b *bed) suspendBackup(name string) {
	b.t.Helper()
	e, found, err := b.ledger.Get(b.t.Context(), b.getBackup(name).UID)
	require.NoError(b.t, err)
	require.True(b.t, found)
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, b.getBackup(name), func(o *velerov1.Backup) error {
		return mark.SetSuspended(o, mark.Suspension{Admission: e.Since, At: b.clock.Now()})
	}))
}

// A running backup whose bucket is away keeps its place and its namespaces for as long as that
// lasts, and everything behind it waits.
func TestASuspendedBackupGivesItsPlaceAway(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s, now := b.newScheduler(), b.clock
	b.createStored("first", 1, "bad", "ns1")
	b.createStored("second", 2, "good", "ns1")
	b.createStored("third", 3, "good", "ns2")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("first", velerov1.BackupPhaseInProgress)
	b.suspendBackup("first")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"second"}, b.admittedNames(), "also before a probe finds its location unavailable")
	b.rules.setAway("bad", "no route")
	now.Step(time.Hour)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseInProgress, b.backupPhase("first"), "one that was begun waits for as long as it takes")
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("second"))

	b.rules.setAway("bad", "")
	require.NoError(t, s.Pass(t.Context()))
	_, marked := mark.SuspensionOf(b.getBackup("first"))
	require.True(t, marked, "it waits for the one that runs on its namespaces")
	x, err := s.Explain(t.Context(), "first")
	require.NoError(t, err)
	require.Equal(t, "second", x.Obstacles[0].Jobs[0].Name)

	b.setPhase("second", velerov1.BackupPhaseCompleted)
	b.wire.hints = nil
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"first"}, b.admittedNames(), "its number is the lowest")
	_, marked = mark.SuspensionOf(b.getBackup("first"))
	require.False(t, marked)
	require.Equal(t, velerov1.BackupPhaseInProgress, b.backupPhase("first"))
	require.True(t, b.wire.hasSent("backup.run first"))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"first"}, b.admittedNames())
}

// Its clock may be behind that of the replica that admitted it before: the new admission is another
// one all the same.
func TestASuspendedBackupIsAdmittedUnderAnotherTime(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s, now := b.newScheduler(), b.clock
	b.createBackup("one", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("one", velerov1.BackupPhaseInProgress)
	old, _, err := b.ledger.Get(t.Context(), "uid-one")
	require.NoError(t, err)
	b.suspendBackup("one")
	now.SetTime(start.Add(-time.Hour))
	require.NoError(t, s.Pass(t.Context()))
	now.Step(30 * time.Second)
	require.NoError(t, s.Pass(t.Context()))
	e, found, err := b.ledger.Get(t.Context(), "uid-one")
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, e.Since.After(old.Since))
	require.NoError(t, b.ledger.Withdraw(t.Context(), old), "a replica that stood still releases the old admission")
	require.Equal(t, []string{"one"}, b.admittedNames())
}
