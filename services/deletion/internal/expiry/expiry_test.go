package expiry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type bed struct {
	t         *testing.T
	client    client.Client
	clock     *clocktesting.FakeClock
	locations map[string]*velerov1.BackupStorageLocation
	fault     error
	c         *Collector
}

func (b *bed) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	if b.fault != nil {
		return nil, b.fault
	}
	if l := b.locations[name]; l != nil {
		return l, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	b := &bed{
		t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), clock: clocktesting.NewFakeClock(start),
		locations: map[string]*velerov1.BackupStorageLocation{"default": {}},
	}
	b.locations["default"].Status.Phase = velerov1.LocationPhaseAvailable
	b.c = &Collector{
		Reader: b.client, Client: b.client, Namespace: "velero", Locations: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Period: time.Minute,
		Running: func(k *velerov1.Backup) bool { return k.Status.Phase == velerov1.BackupPhaseInProgress },
		NeverWritten: func(k *velerov1.Backup) bool {
			return k.Status.Phase == velerov1.BackupPhaseFailedValidation || k.Status.Phase == velerov1.BackupPhaseFailed && k.Status.StartTimestamp == nil
		},
		PermanentlyRefused: func(d *velerov1.DeleteBackupRequest, k *velerov1.Backup) bool {
			return d.Labels["settled"] != "" && k.Labels["leave"] == ""
		},
	}
	return b
}

func newBackup(name string, phase velerov1.BackupPhase, left time.Duration) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}}
	b.Spec.StorageLocation, b.Status.Phase = "default", phase
	b.Status.Expiration = &metav1.Time{Time: start.Add(left)}
	return b
}

func (b *bed) runPass() []velerov1.DeleteBackupRequest {
	b.t.Helper()
	require.NoError(b.t, b.c.Pass(b.t.Context()))
	var list velerov1.DeleteBackupRequestList
	require.NoError(b.t, b.client.List(b.t.Context(), &list))
	return list.Items
}

func (b *bed) readFailure(name string) string {
	b.t.Helper()
	var got velerov1.Backup
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, &got))
	return got.Labels[velerov1.LabelGCFailure]
}

func TestAsksOnceForExpiredBackups(t *testing.T) {
	long := "a-backup-with-a-name-so-long-that-it-does-not-fit-into-a-label-value-at-all"
	never := newBackup("never", velerov1.BackupPhaseCompleted, 0)
	never.Status.Expiration = nil
	b := newBed(t, newBackup(long, velerov1.BackupPhaseCompleted, 0), newBackup("later", velerov1.BackupPhaseCompleted, time.Minute),
		newBackup("running", velerov1.BackupPhaseInProgress, -time.Hour), never)
	got := b.runPass()
	require.Len(t, got, 1)
	require.Equal(t, "expired-uid-"+long, got[0].Name)
	require.Equal(t, long, got[0].Spec.BackupName)
	require.Equal(t, map[string]string{
		velerov1.LabelBackupName: velerov1.LabelValue(long), velerov1.LabelBackupUID: "uid-" + long,
	}, got[0].Labels)
	require.Len(t, b.runPass(), 1, "pending")
	b.clock.Step(time.Minute)
	require.Len(t, b.runPass(), 2, "the other one has expired too")
}

func TestAnotherPendingRequestIsEnough(t *testing.T) {
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "by-hand"}}
	d.Spec.BackupName = "b"
	b := newBed(t, newBackup("b", velerov1.BackupPhaseCompleted, 0), d)
	require.Len(t, b.runPass(), 1)
}

func TestAFailedRequestIsRepeatedAfterAPeriod(t *testing.T) {
	k := newBackup("b", velerov1.BackupPhaseDeleting, 0)
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: requestName(k), UID: "first", CreationTimestamp: metav1.NewTime(start),
	}}
	d.Spec.BackupName, d.Status.Phase, d.Status.Errors = "b", velerov1.DeleteBackupRequestPhaseProcessed, []string{"x"}
	b := newBed(t, k, d)
	require.Equal(t, types.UID("first"), b.runPass()[0].UID)
	b.clock.Step(time.Minute)
	got := b.runPass()
	require.Len(t, got, 1)
	require.Empty(t, got[0].Status.Phase)
}

// An expired backup goes while a restore of it waits for its turn or runs.
func TestExpiryWaitsForRestores(t *testing.T) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r"}}
	r.Spec.BackupName = "b"
	b := newBed(t, newBackup("b", velerov1.BackupPhaseCompleted, 0), r)
	for _, phase := range []velerov1.RestorePhase{"", velerov1.RestorePhaseInProgress, velerov1.RestorePhaseFinalizing} {
		r.Status.Phase = phase
		require.NoError(t, b.client.Update(t.Context(), r))
		require.Empty(t, b.runPass(), phase)
	}
	r.Status.Phase = velerov1.RestorePhaseCompleted
	require.NoError(t, b.client.Update(t.Context(), r))
	require.Len(t, b.runPass(), 1)
}

// A backup whose delete item actions fail is tried every minute, indefinitely.
func TestPausesGrowFromRequestToRequest(t *testing.T) {
	k := newBackup("b", velerov1.BackupPhaseDeleting, 0)
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: requestName(k), UID: "first", CreationTimestamp: metav1.NewTime(start),
	}}
	d.Spec.BackupName, d.Status.Phase = "b", velerov1.DeleteBackupRequestPhaseProcessed
	before := Tries{Failed: 7, After: start.Add(30 * time.Minute)}
	require.NoError(t, before.Set(d))
	b := newBed(t, k, d)
	b.clock.Step(29 * time.Minute)
	require.Equal(t, types.UID("first"), b.runPass()[0].UID)
	b.clock.Step(time.Minute)
	got := b.runPass()
	require.Len(t, got, 1)
	require.Empty(t, got[0].Status.Phase)
	require.Equal(t, 7, ReadTries(&got[0]).Failed)
}

// An expired backup with volume data that cannot be removed gets no new request every minute: the
// refused one is kept for a day, or until the backup is annotated.
func TestARefusalThatStandsIsNotAskedForAgain(t *testing.T) {
	k := newBackup("b", velerov1.BackupPhaseCompleted, 0)
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: requestName(k), UID: "first", CreationTimestamp: metav1.NewTime(start), Labels: map[string]string{"settled": "yes"},
	}}
	d.Spec.BackupName, d.Status.Phase = "b", velerov1.DeleteBackupRequestPhaseProcessed
	b := newBed(t, k, d)
	b.clock.Step(time.Hour)
	require.Equal(t, types.UID("first"), b.runPass()[0].UID)

	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(k), k))
	k.Labels = map[string]string{"leave": "yes"}
	require.NoError(t, b.client.Update(t.Context(), k))
	got := b.runPass()
	require.Len(t, got, 1)
	require.NotEqual(t, types.UID("first"), got[0].UID)
}

func TestObstaclesAreLabels(t *testing.T) {
	b := newBed(t, newBackup("b", velerov1.BackupPhaseCompleted, 0))
	loc := b.locations["default"]
	delete(b.locations, "default")
	require.Empty(t, b.runPass())
	require.Equal(t, "BSLNotFound", b.readFailure("b"))

	b.locations["default"] = loc
	loc.Spec.AccessMode = velerov1.LocationModeReadOnly
	require.Empty(t, b.runPass())
	require.Equal(t, "BSLReadOnly", b.readFailure("b"))

	b.fault = errors.New("the API server is away")
	require.ErrorContains(t, b.c.Pass(t.Context()), "away")
	require.Equal(t, "BSLCannotGet", b.readFailure("b"))

	b.fault, loc.Spec.AccessMode, loc.Status.Phase = nil, "", velerov1.LocationPhaseUnavailable
	require.Empty(t, b.runPass())

	loc.Status.Phase = velerov1.LocationPhaseAvailable
	require.Len(t, b.runPass(), 1)
	require.Empty(t, b.readFailure("b"))
}

// A backup that was refused, or cancelled while it was queued, may never have got a location.
func TestBackupsWithoutDataExpireWithoutALocation(t *testing.T) {
	refused, cancelled := newBackup("refused", velerov1.BackupPhaseFailedValidation, 0), newBackup("cancelled", velerov1.BackupPhaseFailed, 0)
	refused.Spec.StorageLocation, cancelled.Spec.StorageLocation = "no-such", ""
	require.Len(t, newBed(t, refused, cancelled).runPass(), 2)
}

func TestRunStops(t *testing.T) {
	b := newBed(t, newBackup("b", velerov1.BackupPhaseCompleted, time.Second))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.c.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		b.clock.Step(time.Minute)
		var list velerov1.DeleteBackupRequestList
		return b.client.List(t.Context(), &list) == nil && len(list.Items) == 1
	}, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
