package cancel

import (
	"bytes"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCancel shares one cluster among all scenarios.
func TestCancel(t *testing.T) {
	b := newBed(t)
	for _, scenario := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a backup that waits, and the one it waits for", b.waitingAndRunning},
		{"a restore that runs", b.runningRestore},
		{"runners that hang", b.testHungRunners},
		{"racing with the commit", b.testRacingCancels},
	} {
		began := time.Now()
		if !t.Run(scenario.name, scenario.run) {
			return // the next one would not start from a sound state
		}
		t.Logf("%s: %.1f s", scenario.name, time.Since(began).Seconds())
	}
}

// reasonOf is the stable reason of an error.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func (b *bed) waitingAndRunning(t *testing.T) {
	b.Backup(t, "running", b.bucket, "big")
	b.awaitStoring(t, "running")
	b.Backup(t, "waiting", b.bucket, "big")
	position := func(name string) int { return getObject(t, b, name, &velerov1.Backup{}).Status.QueuePosition }
	require.Eventually(t, func() bool { return position("waiting") == 1 }, site.Patience, site.Look)
	b.Backup(t, "behind", b.bucket, "tiny", "big")
	require.Eventually(t, func() bool { return position("behind") == 2 }, site.Patience, site.Look)

	_, err := b.cli.Run(t.Context(), "backup", "cancel", "waiting", "--wait")
	require.NoError(t, err)
	waiting := getObject(t, b, "waiting", &velerov1.Backup{})
	require.Equal(t, velerov1.BackupPhaseFailed, waiting.Status.Phase)
	require.Regexp(t, "^cancelled by .", waiting.Status.FailureReason, "the API server said who called")
	require.Zero(t, waiting.Status.QueuePosition)
	require.Empty(t, b.committedPhase(t, "waiting"))
	if getObject(t, b, "running", &velerov1.Backup{}).Status.Phase == velerov1.BackupPhaseInProgress {
		require.Eventually(t, func() bool { return position("behind") <= 1 }, site.Patience, site.Look, "it moved up")
	}

	began := time.Now()
	for range 2 {
		answer, err := b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: "running", RequestedBy: "alice"})
		require.NoError(t, err, "twice is fine")
		require.Equal(t, "running", answer.GetName())
	}
	running := b.BackupEnds(t, "running")
	t.Logf("the running backup ended after %.1f s", time.Since(began).Seconds())
	require.Equal(t, velerov1.BackupPhaseFailed, running.Status.Phase)
	require.Equal(t, "cancelled by alice", running.Status.FailureReason)
	require.EqualValues(t, 1, claimEpoch(t, running), "its holder stopped it")
	require.Equal(t, velerov1.BackupPhaseFailed, b.committedPhase(t, "running"))
	require.Contains(t, string(b.bucket.ReadZipped(t, "backups/running/running-logs.gz")), "cancelled by alice")

	behind := b.BackupEnds(t, "behind")
	require.Equal(t, velerov1.BackupPhaseCompleted, behind.Status.Phase, behind.Status.FailureReason)
	_, err = b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: "behind"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, "JOB_ENDED", reasonOf(err))
	_, err = b.cli.Run(t.Context(), "backup", "cancel", "behind")
	require.ErrorContains(t, err, "it has ended: Completed")
	_, err = b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: "absent"})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: "Not a name"})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// awaitCreating waits until a restore has created some objects in a namespace. It lists the cluster: the
// restore's own progress is updated each second, when a quick one may have ended.
func (b *bed) awaitCreating(t *testing.T, namespace string) {
	t.Helper()
	require.Eventually(t, func() bool {
		data, err := b.Data(t.Context(), namespace)
		require.NoError(t, err)
		return len(data) > 1
	}, site.Patience, time.Millisecond, "objects are created in %s", namespace)
}

func (b *bed) runningRestore(t *testing.T) {
	b.Restore(t, "restore", "behind", "big", "copy")
	b.awaitCreating(t, "copy")
	thaw := b.freezeService(t, "restore-runner") // it must not be through before the request is there
	_, err := b.queue.CancelRestore(t.Context(), &queuev1.CancelRestoreRequest{Name: "restore", RequestedBy: "alice"})
	thaw()
	require.NoError(t, err)
	restore := b.RestoreEnds(t, "restore")
	require.Equal(t, velerov1.RestorePhaseFailed, restore.Status.Phase)
	require.Equal(t, "cancelled by alice", restore.Status.FailureReason)
	require.EqualValues(t, 1, claimEpoch(t, restore), "its holder stopped it")
	require.Contains(t, string(b.bucket.ReadZipped(t, "restores/restore/restore-restore-logs.gz")), "cancelled by alice")
	b.bucket.ReadZipped(t, "restores/restore/restore-restore-results.gz")
	created := regexp.MustCompile(`\(created\)`).FindAllIndex(b.bucket.ReadZipped(t, "restores/restore/restore-restore-resource-list.json.gz"), -1)
	require.LessOrEqual(t, len(created), restore.Status.Progress.ItemsRestored)
	data, err := b.Data(t.Context(), "copy")
	require.NoError(t, err)
	require.Less(t, len(data), 2*objects, "it stopped on the way")
	require.LessOrEqual(t, len(data), len(created), "everything there is told")
}

// testHungRunners stops the only runners in the middle of jobs: queue-scheduler takes the claims and says that the
// jobs wait for a runner. Awake again, the same runners stop what they did and end the jobs.
func (b *bed) testHungRunners(t *testing.T) {
	b.Backup(t, "hung", b.bucket, "big")
	b.awaitStoring(t, "hung")
	thawBackup := b.freezeService(t, "backup-runner")
	b.Restore(t, "hung", "behind", "tiny", "hung-tiny")
	require.Equal(t, velerov1.RestorePhaseCompleted, b.RestoreEnds(t, "hung").Status.Phase)
	b.Restore(t, "stuck", "behind", "big", "stuck")
	b.awaitCreating(t, "stuck")
	thawRestore := b.freezeService(t, "restore-runner")

	_, err := b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: "hung", RequestedBy: "alice"})
	require.NoError(t, err)
	_, err = b.queue.CancelRestore(t.Context(), &queuev1.CancelRestoreRequest{Name: "stuck", RequestedBy: "bob"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return free(t, getObject(t, b, "hung", &velerov1.Backup{})) && free(t, getObject(t, b, "stuck", &velerov1.Restore{}))
	}, site.Patience, site.Look, "the claims are taken")
	before, err := b.Data(t.Context(), "stuck")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(b.Fleet.Of("queue-scheduler")[0].LogPath())
		return err == nil && bytes.Contains(text, []byte("Cancelled job waits for a runner to end it"))
	}, site.Patience, site.Look)
	thawBackup()
	thawRestore()
	backup, restore := b.BackupEnds(t, "hung"), b.RestoreEnds(t, "stuck")
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
	require.Equal(t, "cancelled by alice", backup.Status.FailureReason)
	require.EqualValues(t, 3, claimEpoch(t, backup), "taken from its holder, and by a runner")
	require.Equal(t, velerov1.BackupPhaseFailed, b.committedPhase(t, "hung"))
	require.Contains(t, string(b.bucket.ReadZipped(t, "backups/hung/hung-logs.gz")), "cancelled by alice")
	require.Equal(t, velerov1.RestorePhaseFailed, restore.Status.Phase)
	require.Equal(t, "cancelled by bob", restore.Status.FailureReason)

	b.Backup(t, "later", b.bucket, "tiny")
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, "later").Status.Phase)
	b.Restore(t, "later", "later", "tiny", "later-tiny")
	require.Equal(t, velerov1.RestorePhaseCompleted, b.RestoreEnds(t, "later").Status.Phase)
	for _, service := range []string{"backup-runner", "restore-runner"} {
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(b.Fleet.Of(service)[0].LogPath())
			return err == nil && bytes.Contains(text, []byte("Lost claim; job stopped"))
		}, site.Patience, site.Look, "the woken %s stops its job", service)
	}
	after, err := b.Data(t.Context(), "stuck")
	require.NoError(t, err)
	require.Subset(t, after, before)
	require.LessOrEqual(t, len(after), len(before)+inFlight, "the woken runner began nothing")
	require.Equal(t, backup.Status, getObject(t, b, "hung", &velerov1.Backup{}).Status)
	require.Equal(t, velerov1.BackupPhaseFailed, b.committedPhase(t, "hung"))
}

// testRacingCancels cancels small backups at every moment between creation and end: their phase agrees with
// the answer.
func (b *bed) testRacingCancels(t *testing.T) {
	moments := []func(*velerov1.Backup) bool{
		func(*velerov1.Backup) bool { return true },
		func(o *velerov1.Backup) bool {
			return o.Status.Phase != "" && o.Status.Phase != velerov1.BackupPhaseNew
		},
		func(o *velerov1.Backup) bool { return o.Status.Phase == velerov1.BackupPhaseInProgress },
		func(o *velerov1.Backup) bool { return o.Status.Progress != nil && o.Status.Progress.ItemsBackedUp > 0 },
	}
	stopped, ended := 0, 0
	for i := range 16 {
		name := "race-" + string(rune('a'+i))
		b.Backup(t, name, b.bucket, "tiny")
		require.Eventually(t, func() bool {
			o := getObject(t, b, name, &velerov1.Backup{})
			return moments[i%len(moments)](o) || o.Status.Phase.Terminal()
		}, site.Patience, time.Millisecond)
		_, err := b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
		backup := b.BackupEnds(t, name)
		if err == nil {
			stopped++
			require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase, name)
			require.Equal(t, "cancelled by alice", backup.Status.FailureReason)
		} else {
			ended++
			require.Equal(t, codes.FailedPrecondition, status.Code(err), err)
			require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s: %s", name, backup.Status.FailureReason)
		}
		if phase := b.committedPhase(t, name); phase != "" {
			require.Equal(t, backup.Status.Phase, phase, name)
		}
	}
	t.Logf("%d stopped, %d were about to end or had ended", stopped, ended)
}
