package metrics_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/metrics"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "velero"

// noon is the time of the readings.
var noon = time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)

// bed is one replica beside the objects of a cluster.
type bed struct {
	client   client.Client
	registry *prometheus.Registry
	gauges   *metrics.Gauges
}

func newBed(t *testing.T, c client.Client) *bed {
	t.Helper()
	b := &bed{client: c, registry: prometheus.NewRegistry()}
	b.gauges = metrics.NewGauges(metrics.Config{Reader: c, Namespace: namespace, Clock: clocktesting.NewFakePassiveClock(noon), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, b.registry.Register(b.gauges))
	return b
}

func newCluster(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

// readWhileLeading is what the replica shows of some metrics while it leads.
func (b *bed) readWhileLeading(t *testing.T, names ...string) string {
	t.Helper()
	var out string
	require.NoError(t, b.gauges.ShowWhile(func(context.Context) error {
		out = b.shownSeries(t, names...)
		return nil
	})(t.Context()))
	return out
}

// shownSeries are the series, of all metrics where none is named, in the text format of Prometheus,
// without the comments.
func (b *bed) shownSeries(t *testing.T, names ...string) string {
	t.Helper()
	if len(names) == 0 {
		families, err := b.registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			names = append(names, family.GetName())
		}
	}
	text, err := testutil.CollectAndFormat(b.gauges, expfmt.TypeTextPlain, names...)
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

func newBackup(name, schedule string, phase velerov1.BackupPhase, hour int, change ...func(*velerov1.Backup)) *velerov1.Backup {
	at := metav1.NewTime(noon.Truncate(24 * time.Hour).Add(time.Duration(hour) * time.Hour))
	b := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: at},
		Status:     velerov1.BackupStatus{Phase: phase},
	}
	if schedule != "" {
		b.Labels = map[string]string{velerov1.LabelScheduleName: schedule}
	}
	if phase.Terminal() {
		b.Status.CompletionTimestamp = &at
	}
	for _, do := range change {
		do(b)
	}
	return b
}

func newSchedule(name string, change ...func(*velerov1.Schedule)) *velerov1.Schedule {
	s := &velerov1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-48 * time.Hour))},
		Spec:       velerov1.ScheduleSpec{Schedule: "0 3 * * *"}, Status: velerov1.ScheduleStatus{Phase: velerov1.SchedulePhaseEnabled},
	}
	for _, do := range change {
		do(s)
	}
	return s
}

func withSize(bytes string, items, errors int) func(*velerov1.Backup) {
	return func(b *velerov1.Backup) {
		b.Annotations = map[string]string{holdfast.AnnotationTarballBytes: bytes}
		b.Status.Progress, b.Status.Errors = &velerov1.BackupProgress{TotalItems: items}, errors
	}
}

// Of the backups of a schedule the newest counts, whatever the order of the list; one that failed
// does not take the time of the last good one away.
func TestTheLastBackupsOfASchedule(t *testing.T) {
	b := newBed(t, newCluster(
		newSchedule("daily"),
		newBackup("a-new", "daily", velerov1.BackupPhaseFailed, 9, withSize("", 0, 4)),
		newBackup("b-old", "daily", velerov1.BackupPhaseCompleted, 3, withSize("100", 10, 0)),
		newBackup("c-mid", "daily", velerov1.BackupPhaseCompleted, 6, withSize("200", 20, 0)),
		newBackup("d-runs", "daily", velerov1.BackupPhaseInProgress, 11),
		newBackup("by-hand", "", velerov1.BackupPhaseCompleted, 2, withSize("7", 1, 0)),
		newBackup("elsewhere", "", velerov1.BackupPhaseFailed, 10, func(b *velerov1.Backup) { b.Namespace = "other" }),
	))
	require.Equal(t, `velero_backup_items_errors{schedule=""} 0
velero_backup_items_errors{schedule="daily"} 4
velero_backup_items_total{schedule=""} 1
velero_backup_items_total{schedule="daily"} 0
velero_backup_last_status{schedule=""} 1
velero_backup_last_status{schedule="daily"} 0
velero_backup_last_successful_timestamp{schedule=""} 1.7677512e+09
velero_backup_last_successful_timestamp{schedule="daily"} 1.7677656e+09
velero_backup_tarball_size_bytes{schedule=""} 7
velero_backup_tarball_size_bytes{schedule="daily"} 200
velero_backup_total 5`, b.readWhileLeading(t, "velero_backup_items_errors", "velero_backup_items_total", "velero_backup_last_status",
		"velero_backup_last_successful_timestamp", "velero_backup_tarball_size_bytes", "velero_backup_total"))
}

// A backup that failed validation is a last one too, though it has no time of its end.
func TestARefusedBackupIsTheLastOne(t *testing.T) {
	b := newBed(t, newCluster(newSchedule("daily"), newBackup("good", "daily", velerov1.BackupPhaseCompleted, 3),
		newBackup("refused", "daily", velerov1.BackupPhaseFailedValidation, 4, func(b *velerov1.Backup) { b.Status.CompletionTimestamp = nil })))
	require.Equal(t, `velero_backup_last_status{schedule="daily"} 0`, b.readWhileLeading(t, "velero_backup_last_status"))
}

// A restart loses nothing, a replica that does not lead shows nothing, and neither does one that led.
func TestOneReplicaShowsWhatThereIs(t *testing.T) {
	c := newCluster(newSchedule("daily"), newBackup("b", "daily", velerov1.BackupPhaseCompleted, 3))
	one, two := newBed(t, c), newBed(t, c)
	before := one.readWhileLeading(t)
	require.Contains(t, before, "velero_backup_total 1")
	require.Empty(t, one.shownSeries(t), "its duty has ended")
	require.Empty(t, two.shownSeries(t), "it never had one")
	require.Equal(t, before, two.readWhileLeading(t))
}

// What is deleted takes its series with it; backups of a schedule that is gone are counted as
// backups and have no series of their own.
func TestADeletedScheduleLeavesNothing(t *testing.T) {
	daily := newSchedule("daily")
	b := newBed(t, newCluster(daily, newBackup("b", "daily", velerov1.BackupPhaseCompleted, 3)))
	require.Contains(t, b.readWhileLeading(t), `schedule="daily"`)
	require.NoError(t, b.client.Delete(t.Context(), daily))
	after := b.readWhileLeading(t)
	require.NotContains(t, after, "daily")
	require.Contains(t, after, "velero_backup_total 1")
}

func TestWhatWaitsAndRuns(t *testing.T) {
	restore := func(name string, phase velerov1.RestorePhase, age time.Duration) *velerov1.Restore {
		return &velerov1.Restore{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))},
			Status:     velerov1.RestoreStatus{Phase: phase},
		}
	}
	b := newBed(t, newCluster(
		newBackup("empty", "", "", 11), newBackup("new", "", velerov1.BackupPhaseNew, 10), newBackup("queued", "", velerov1.BackupPhaseQueued, 9),
		newBackup("ready", "", velerov1.BackupPhaseReadyToStart, 8), newBackup("runs", "", velerov1.BackupPhaseInProgress, 1), newBackup("done", "", velerov1.BackupPhaseCompleted, 0),
		restore("r", "", time.Minute), restore("runs", velerov1.RestorePhaseInProgress, time.Hour),
	))
	require.Equal(t, `holdfast_queue_depth{kind="Backup"} 4
holdfast_queue_depth{kind="Restore"} 1
holdfast_queue_oldest_seconds{kind="Backup"} 14400
holdfast_queue_oldest_seconds{kind="Restore"} 60
velero_restore_total 2`, b.readWhileLeading(t, "holdfast_queue_depth", "holdfast_queue_oldest_seconds", "velero_restore_total"))
	jobs := b.readWhileLeading(t, "holdfast_jobs")
	require.Contains(t, jobs, `holdfast_jobs{kind="Backup",phase="New"} 2`)
	require.Contains(t, jobs, `holdfast_jobs{kind="Backup",phase="InProgress"} 1`)
	require.Contains(t, jobs, `holdfast_jobs{kind="Backup",phase="Finalizing"} 0`)
	require.Contains(t, jobs, `holdfast_jobs{kind="Restore",phase="New"} 1`)
	require.NotContains(t, jobs, "Completed")
}

// The cache of the service holds less of jobs that have ended: the gauges are the same.
func TestGaugesReadStrippedJobs(t *testing.T) {
	full := []client.Object{
		newSchedule("daily"), newBackup("good", "daily", velerov1.BackupPhaseCompleted, 3, withSize("100", 10, 1)),
		newBackup("bad", "daily", velerov1.BackupPhaseFailed, 4, withSize("", 7, 2)), newBackup("runs", "daily", velerov1.BackupPhaseInProgress, 5),
	}
	full[1].(*velerov1.Backup).Spec.IncludedNamespaces = []string{"ns1"} //nolint:forcetypeassert // it is one
	var stripped []client.Object
	for _, o := range full {
		kept, err := queue.StripEnded(o.DeepCopyObject())
		require.NoError(t, err)
		kept.(client.Object).SetResourceVersion("")       //nolint:forcetypeassert // the transform keeps kinds
		stripped = append(stripped, kept.(client.Object)) //nolint:forcetypeassert // the transform keeps kinds
	}
	names := []string{"velero_backup_items_errors", "velero_backup_items_total", "velero_backup_last_status",
		"velero_backup_last_successful_timestamp", "velero_backup_tarball_size_bytes", "holdfast_jobs"}
	require.Equal(t, newBed(t, newCluster(full...)).readWhileLeading(t, names...), newBed(t, newCluster(stripped...)).readWhileLeading(t, names...))
	require.Empty(t, stripped[1].(*velerov1.Backup).Spec.IncludedNamespaces) //nolint:forcetypeassert // it is one
}

// A Schedule that makes no backups has no interval, so that no alert expects one.
func TestIntervalsOfSchedules(t *testing.T) {
	b := newBed(t, newCluster(
		newSchedule("daily"), newSchedule("hourly", func(s *velerov1.Schedule) { s.Spec.Schedule = "@hourly" }),
		newSchedule("paused", func(s *velerov1.Schedule) { s.Spec.Paused = true }),
		newSchedule("new", func(s *velerov1.Schedule) { s.Status.Phase = velerov1.SchedulePhaseNew }),
		newSchedule("wrong", func(s *velerov1.Schedule) { s.Spec.Schedule = "never" }),
	))
	want := `holdfast_schedule_interval_seconds{schedule="daily"} 86400
holdfast_schedule_interval_seconds{schedule="hourly"} 3600`
	require.Equal(t, want, b.readWhileLeading(t, "holdfast_schedule_interval_seconds"))
	require.Equal(t, want, b.readWhileLeading(t, "holdfast_schedule_interval_seconds"), "as remembered")
	require.Contains(t, b.readWhileLeading(t), `holdfast_schedule_created_timestamp_seconds{schedule="paused"} 1.7676144e+09`)
}

// What keeps the alert about good backups silent for a Schedule that was resumed.
func TestPausedAndSkippedSchedules(t *testing.T) {
	skipped := metav1.NewTime(noon.Add(-time.Hour))
	b := newBed(t, newCluster(
		newSchedule("daily"), newSchedule("paused", func(s *velerov1.Schedule) { s.Spec.Paused = true }),
		newSchedule("resumed", func(s *velerov1.Schedule) { s.Status.LastSkipped = &skipped }),
	))
	require.Equal(t, `holdfast_schedule_paused{schedule="daily"} 0
holdfast_schedule_paused{schedule="paused"} 1
holdfast_schedule_paused{schedule="resumed"} 0
holdfast_schedule_skipped_timestamp_seconds{schedule="resumed"} 1.7677836e+09`, b.readWhileLeading(t, "holdfast_schedule_paused", "holdfast_schedule_skipped_timestamp_seconds"))
}
