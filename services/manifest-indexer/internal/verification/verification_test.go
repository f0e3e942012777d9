package verification

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

var began = time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)

// bed is a Verifier that finds what faults says of a backup.
type bed struct {
	*Verifier
	client.Client
	clock    *clocktesting.FakeClock
	events   *events.FakeRecorder
	faults   map[string]int64
	fails    error
	verified []string
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	b := &bed{
		Client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(),
		clock:  clocktesting.NewFakeClock(began), events: events.NewFakeRecorder(10), faults: map[string]int64{},
	}
	b.Verifier = New(Config{
		Reader: b.Client, Client: b.Client, Namespace: "velero", Clock: b.clock, Log: slog.New(slog.DiscardHandler), Events: b.events,
		Metrics: prometheus.NewPedanticRegistry(), Period: 24 * time.Hour, Verify: b.answer,
	})
	return b
}

func (b *bed) answer(_ context.Context, backup string, _ func(_, _ int64)) (*tarball.Verification, bool, error) {
	b.verified = append(b.verified, backup)
	v := &tarball.Verification{Objects: 3}
	for range b.faults[backup] {
		v.AddFault(tarball.FaultMissing, "resources/pods/namespaces/a/b.json", "is not in the tarball")
	}
	return v, false, b.fails
}

// newBackup is one of schedule, made some hours after the beginning.
func newBackup(name, schedule string, hours int, phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}}
	if schedule != "" {
		b.Labels = map[string]string{velerov1.LabelScheduleName: schedule}
	}
	start := metav1.NewTime(began.Add(time.Duration(hours-100) * time.Hour))
	b.Status = velerov1.BackupStatus{Phase: phase, StartTimestamp: &start}
	return b
}

func (b *bed) pass(t *testing.T, after time.Duration) []string {
	t.Helper()
	b.clock.Step(after)
	b.verified = nil
	require.NoError(t, b.Pass(t.Context()))
	return b.verified
}

func TestTheNewestBackupOfEachScheduleIsVerified(t *testing.T) {
	b := newBed(t,
		newBackup("d-1", "daily", 1, velerov1.BackupPhaseCompleted), newBackup("d-2", "daily", 2, velerov1.BackupPhasePartiallyFailed),
		newBackup("d-3", "daily", 3, velerov1.BackupPhaseInProgress), newBackup("d-4", "daily", 4, velerov1.BackupPhaseFailed),
		newBackup("h-1", "hourly", 1, velerov1.BackupPhaseCompleted), newBackup("by-hand", "", 5, velerov1.BackupPhaseCompleted),
	)
	b.faults["h-1"] = 2
	require.Equal(t, []string{"d-2", "h-1"}, b.pass(t, 0))
	require.Contains(t, <-b.events.Events, "Normal Verified 3 objects")
	require.Contains(t, <-b.events.Events, "Warning Damaged 2 faults, the first: Missing resources/pods/namespaces/a/b.json")
	read := &velerov1.Backup{}
	require.NoError(t, b.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: "h-1"}, read))
	var o Outcome
	require.NoError(t, json.Unmarshal([]byte(read.Annotations[holdfast.AnnotationVerified]), &o))
	require.Equal(t, Outcome{UID: "uid-h-1", Time: began, Faults: 2}, o)
	require.NoError(t, testutil.CollectAndCompare(&b.shown, strings.NewReader(`
# HELP holdfast_backup_verification_faults What the last verification of a backup of a schedule found wrong.
# TYPE holdfast_backup_verification_faults gauge
holdfast_backup_verification_faults{schedule="daily"} 0
holdfast_backup_verification_faults{schedule="hourly"} 2
`), "holdfast_backup_verification_faults"))

	require.NoError(t, b.Create(t.Context(), newBackup("h-2", "hourly", 9, velerov1.BackupPhaseCompleted)))
	require.Empty(t, b.pass(t, 23*time.Hour), "once a day for a schedule, however many backups it makes")
	require.Equal(t, []string{"d-2", "h-2"}, b.pass(t, time.Hour))
}

// What was found is known to a replica that takes over.
func TestOutcomesOutliveTheProcess(t *testing.T) {
	b := newBed(t, newBackup("d-1", "daily", 1, velerov1.BackupPhaseCompleted))
	b.faults["d-1"] = 1
	b.pass(t, 0)
	other := newBed(t)
	other.Client, other.Verifier.Client, other.Verifier.Reader = b.Client, b.Client, b.Client
	require.Empty(t, other.pass(t, time.Hour))
	require.Equal(t, 2, testutil.CollectAndCount(&other.shown))

	again := newBackup("d-1", "daily", 1, velerov1.BackupPhaseCompleted)
	again.UID, again.Annotations = "another", map[string]string{holdfast.AnnotationVerified: `{"uid":"uid-d-1","time":"2026-03-04T00:00:00Z"}`}
	require.Equal(t, []string{"d-1"}, newBed(t, again).pass(t, time.Hour), "a copied annotation says nothing")
}

func TestFailedVerificationIsTriedAgainLater(t *testing.T) {
	b := newBed(t, newBackup("d-1", "daily", 1, velerov1.BackupPhaseCompleted))
	b.fails = errors.New("the bucket is away")
	require.ErrorContains(t, b.Pass(t.Context()), `backup "d-1" of schedule "daily": the bucket is away`)
	require.Empty(t, b.events.Events)
	require.Empty(t, b.pass(t, 10*time.Minute))
	b.fails = nil
	require.Equal(t, []string{"d-1"}, b.pass(t, time.Hour))
}

func TestNothingIsVerifiedWithoutAPeriod(t *testing.T) {
	b := newBed(t, newBackup("d-1", "daily", 1, velerov1.BackupPhaseCompleted))
	b.Period = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, b.Run(ctx))
	require.Empty(t, b.verified)
}
