package count_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const namespace = "velero"

// newCachedClient has the Schedules of the namespace, and one of another.
func newCachedClient(names ...string) client.Client {
	objects := []client.Object{&velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "elsewhere"}}}
	for _, name := range names {
		objects = append(objects, &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

func newSchedules(r *prometheus.Registry, names ...string) *count.Schedules {
	return count.NewSchedules(r, newCachedClient(names...), namespace)
}

// textSeries are the series of metrics in the text format of Prometheus, without the comments.
func textSeries(t *testing.T, r *prometheus.Registry, names ...string) string {
	t.Helper()
	text, err := testutil.CollectAndFormat(r, expfmt.TypeTextPlain, names...)
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

var outcomes = []string{
	"velero_backup_success_total", "velero_backup_partial_failure_total", "velero_backup_failure_total", "velero_backup_validation_failure_total",
}

func TestEachPhaseIsCountedOnce(t *testing.T) {
	for phase, name := range map[velerov1.BackupPhase]string{
		velerov1.BackupPhaseCompleted: outcomes[0], velerov1.BackupPhasePartiallyFailed: outcomes[1],
		velerov1.BackupPhaseFailed: outcomes[2], velerov1.BackupPhaseFailedValidation: outcomes[3],
		velerov1.BackupPhaseInProgress: "", velerov1.BackupPhaseDeleting: "",
	} {
		r := prometheus.NewRegistry()
		backups, err := count.NewBackups(newSchedules(r))
		require.NoError(t, err)
		backups.Ended(&velerov1.Backup{Status: velerov1.BackupStatus{Phase: phase}})
		for _, other := range outcomes {
			want := other + `{schedule=""} 0`
			if other == name {
				want = other + `{schedule=""} 1`
			}
			require.Equal(t, want, textSeries(t, r, other), phase)
		}
	}
}

func TestABackupIsCountedWithItsNumbers(t *testing.T) {
	r := prometheus.NewRegistry()
	backups, err := count.NewBackups(newSchedules(r, "daily"))
	require.NoError(t, err)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *metav1.Time { return &metav1.Time{Time: begin.Add(after)} }
	b := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{velerov1.LabelScheduleName: "daily"}},
		Status: velerov1.BackupStatus{
			Phase: velerov1.BackupPhaseCompleted, Warnings: 3, StartTimestamp: at(0), CompletionTimestamp: at(2 * time.Minute),
			VolumeSnapshotsAttempted: 4, VolumeSnapshotsCompleted: 3, CSIVolumeSnapshotsAttempted: 2, CSIVolumeSnapshotsCompleted: 2,
		},
	}
	backups.Begun(b)
	backups.Ended(b)
	for name, want := range map[string]string{
		"velero_backup_attempt_total": "1", "velero_backup_warning_total": "3",
		"velero_volume_snapshot_attempt_total": "4", "velero_volume_snapshot_success_total": "3", "velero_volume_snapshot_failure_total": "1",
	} {
		require.Contains(t, textSeries(t, r, name), name+`{schedule="daily"} `+want)
	}
	require.Contains(t, textSeries(t, r, "velero_csi_snapshot_attempt_total"), `velero_csi_snapshot_attempt_total{backupName="",schedule="daily"} 2`)
	require.Contains(t, textSeries(t, r, "velero_csi_snapshot_success_total"), `velero_csi_snapshot_success_total{backupName="",schedule="daily"} 2`)
	require.Contains(t, textSeries(t, r, "velero_csi_snapshot_failure_total"), `velero_csi_snapshot_failure_total{backupName="",schedule="daily"} 0`)
	durations := textSeries(t, r, "velero_backup_duration_seconds")
	require.Contains(t, durations, `velero_backup_duration_seconds_sum{schedule="daily"} 120`)
	require.Contains(t, durations, `velero_backup_duration_seconds_bucket{schedule="daily",le="60"} 0`)
	require.Contains(t, durations, `velero_backup_duration_seconds_bucket{schedule="daily",le="300"} 1`)
}

// The object alone says which schedule a restore is of when its backup is not at hand.
func TestRestores(t *testing.T) {
	r := prometheus.NewRegistry()
	restores, err := count.NewRestores(newSchedules(r, "daily"))
	require.NoError(t, err)
	restores.Begun("daily")
	restores.Ended("daily", velerov1.RestorePhasePartiallyFailed)
	restores.Ended("daily", velerov1.RestorePhaseInProgress)
	restores.EndedAs(&velerov1.Restore{Spec: velerov1.RestoreSpec{ScheduleName: "daily"}, Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseFailed}})
	restores.EndedAs(&velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{velerov1.LabelScheduleName: "daily"}},
		Status:     velerov1.RestoreStatus{Phase: velerov1.RestorePhaseFailedValidation},
	})
	restores.EndedAs(&velerov1.Restore{Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseCompleted}})
	for name, want := range map[string]string{
		"velero_restore_attempt_total": `{schedule="daily"} 1`, "velero_restore_partial_failure_total": `{schedule="daily"} 1`,
		"velero_restore_failed_total": `{schedule="daily"} 1`, "velero_restore_validation_failed_total": `{schedule="daily"} 1`,
		"velero_restore_success_total": `{schedule=""} 1`,
	} {
		require.Contains(t, textSeries(t, r, name), name+want)
	}
}

// A label that names no Schedule of the namespace, whatever it has, added series of its own, which
// stayed; and increase() did not see the failure that one began with.
func TestLabelsOfUsersAddNoSeries(t *testing.T) {
	r := prometheus.NewRegistry()
	backups, err := count.NewBackups(newSchedules(r, "daily"))
	require.NoError(t, err)
	for _, name := range []string{"", "daily", "elsewhere", "deleted", "a", "b", "c"} {
		b := &velerov1.Backup{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{velerov1.LabelScheduleName: name}},
			Status: velerov1.BackupStatus{
				Phase: velerov1.BackupPhaseFailed, StartTimestamp: &metav1.Time{Time: time.Unix(0, 0)}, CompletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
				VolumeSnapshotsAttempted: 1, CSIVolumeSnapshotsAttempted: 1,
			},
		}
		backups.Begun(b)
		backups.Ended(b)
	}
	for name, labels := range map[string]string{
		"velero_backup_attempt_total": "", "velero_backup_failure_total": "",
		"velero_volume_snapshot_failure_total": "", "velero_csi_snapshot_failure_total": `backupName="",`,
	} {
		require.Equal(t, name+"{"+labels+`schedule=""} 6`+"\n"+name+"{"+labels+`schedule="daily"} 1`, textSeries(t, r, name))
	}
	require.Equal(t, 2, strings.Count(textSeries(t, r, "velero_backup_duration_seconds"), "velero_backup_duration_seconds_count"))
}

func TestMetricsOfTheSameNameAreAnError(t *testing.T) {
	s := newSchedules(prometheus.NewRegistry())
	_, err := count.NewBackups(s)
	require.NoError(t, err)
	_, err = count.NewBackups(s)
	require.ErrorContains(t, err, "register metrics")
}
