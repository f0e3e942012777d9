package backupsync

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type bed struct {
	t      *testing.T
	client client.Client
	store  *memstore.Store
	clock  *clocktesting.FakeClock
	s      *Syncer
}

// Open implements Opener.
func (b *bed) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	return b.store, nil
}

const longName = "a-location-whose-name-is-so-long-that-a-label-cannot-hold-it-as-it-is-ever"

func newBed(t *testing.T, objects ...client.Object) *bed {
	loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: longName, UID: "loc"}}
	loc.Status.Phase = velerov1.LocationPhaseAvailable
	b := &bed{
		t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(append(objects, loc)...).Build(),
		store: memstore.New(), clock: clocktesting.NewFakeClock(start),
	}
	b.s = New(Config{
		Reader: b.client, Cached: b.client, Client: b.client, Namespace: "velero", Opener: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Period: time.Minute,
	})
	return b
}

func (b *bed) runPass() {
	b.t.Helper()
	require.NoError(b.t, b.s.Pass(b.t.Context()))
}

// getBackup returns nil when the object does not exist.
func (b *bed) getBackup(name string) *velerov1.Backup {
	b.t.Helper()
	var got velerov1.Backup
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, &got)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return &got
}

func storedBackup(name string, phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{
		TypeMeta: metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "elsewhere", UID: "their-uid", ResourceVersion: "77", Generation: 5,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "velero"}},
			Labels:        map[string]string{velerov1.LabelStorageLocation: "theirs", "team": "a"},
			Annotations:   map[string]string{holdfast.AnnotationClaim: "{}", "note": "kept"},
		},
	}
	b.Spec.StorageLocation = "theirs"
	b.Status.Phase = phase
	b.Status.Errors = 3
	return b
}

func (b *bed) putBackup(backup *velerov1.Backup) {
	b.t.Helper()
	data, err := json.Marshal(backup)
	require.NoError(b.t, err)
	b.store.Set(layout.BackupMetadata(backup.Name), data)
	b.store.Set(layout.BackupTarball(backup.Name), []byte("x"))
}

func TestImportsEndedBackups(t *testing.T) {
	b := newBed(t)
	for _, phase := range []velerov1.BackupPhase{"Completed", "PartiallyFailed", "Failed", "Finalizing", "WaitingForPluginOperations", "InProgress", ""} {
		b.putBackup(storedBackup("b-"+strings.ToLower(string(phase))+"x", phase))
	}
	expired := storedBackup("expired", velerov1.BackupPhaseFinalizing)
	expired.Status.Expiration = &metav1.Time{Time: start.Add(-time.Hour)}
	b.putBackup(expired)
	b.store.Set("backups/being-written/parts/u/1", []byte("x"))
	b.runPass()

	got := b.getBackup("b-completedx")
	require.NotNil(t, got)
	require.Equal(t, velerov1.BackupPhaseCompleted, got.Status.Phase)
	require.Equal(t, 3, got.Status.Errors)
	require.Equal(t, longName, got.Spec.StorageLocation)
	require.Equal(t, velerov1.LabelValue(longName), got.Labels[velerov1.LabelStorageLocation])
	require.Equal(t, "a", got.Labels["team"])
	require.Equal(t, map[string]string{"note": "kept"}, got.Annotations)
	require.NotEqual(t, types.UID("their-uid"), got.UID)
	require.Empty(t, got.ManagedFields)
	require.NotNil(t, b.getBackup("b-partiallyfailedx"))
	require.NotNil(t, b.getBackup("b-failedx"))
	for _, name := range []string{"b-finalizingx", "b-waitingforpluginoperationsx", "b-inprogressx", "b-x", "being-written"} {
		require.Nil(t, b.getBackup(name), name)
	}
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, b.getBackup("expired").Status.Phase)

	reads := b.store.Calls(memstore.OpList)
	b.runPass()
	require.Equal(t, reads, b.store.Calls(memstore.OpList), "not due")
	b.clock.Step(time.Minute)
	b.runPass()
	require.Greater(t, b.store.Calls(memstore.OpList), reads)
}

func TestDamagedBackupsDoNotHoldUpOthers(t *testing.T) {
	b, events := newBed(t), &jobtest.Events{}
	b.s.Events = events
	b.store.Set(layout.BackupMetadata("broken"), []byte("{"))
	b.store.Set(layout.BackupMetadata("huge"), bytes.Repeat([]byte(" "), maxMetadata+1))
	b.store.Set(layout.BackupMetadata("other-kind"), []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other-kind"}}`))
	b.store.Set("backups/copied/velero-backup.json", []byte(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"original"}}`))
	b.store.Set("backups/Has Space/velero-backup.json", []byte(`{}`))
	b.putBackup(storedBackup("good", velerov1.BackupPhaseCompleted))
	b.runPass()
	require.NotNil(t, b.getBackup("good"))
	for _, name := range []string{"broken", "huge", "other-kind", "copied", "original"} {
		require.Nil(t, b.getBackup(name), name)
	}
	require.Contains(t, events.Text(), `Warning BackupNotSynced: backup "broken" in the bucket cannot be read: `)
}

// One object the bucket refuses to give must not keep the rest of a bucket away indefinitely.
func TestAnUnreadableBackupDoesNotHoldUpOthers(t *testing.T) {
	b := newBed(t)
	for i := range 20 {
		b.putBackup(storedBackup(fmt.Sprintf("b%02d", i), velerov1.BackupPhaseCompleted))
	}
	b.store.Inject(func(_ memstore.Op, key string) error {
		if strings.HasPrefix(key, "backups/b07/") {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.ErrorIs(t, b.s.Pass(t.Context()), objectstore.ErrAccess)
	for i := range 20 {
		require.Equal(t, i == 7, b.getBackup(fmt.Sprintf("b%02d", i)) == nil, i)
	}
}

func TestScheduleOwnersMustBeTheSame(t *testing.T) {
	b := newBed(t, &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "here", UID: "same"}})
	backup := storedBackup("b", velerov1.BackupPhaseCompleted)
	ref := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "velero.io/v1", Kind: kind, Name: name, UID: uid}
	}
	backup.OwnerReferences = []metav1.OwnerReference{
		ref("Schedule", "here", "same"), ref("Schedule", "here", "other"), ref("Schedule", "gone", "x"), ref("Team", "t", "y"),
	}
	b.putBackup(backup)
	b.runPass()
	require.Equal(t, []metav1.OwnerReference{ref("Schedule", "here", "same"), ref("Team", "t", "y")}, b.getBackup("b").OwnerReferences)
}

func TestImportsPodVolumeBackups(t *testing.T) {
	b := newBed(t)
	b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	pvb := velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{
		Name: "b-1", Namespace: "elsewhere", UID: "x", Labels: map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "their-uid"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Backup", Name: "b", UID: "their-uid"}},
	}}
	pvb.Spec.BackupStorageLocation = "theirs"
	pvb.Status.SnapshotID, pvb.Status.Phase = "snap", velerov1.PodVolumePhaseCompleted
	data, err := json.Marshal([]velerov1.PodVolumeBackup{pvb})
	require.NoError(t, err)
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, string(data)))
	b.putBackup(storedBackup("none", velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupPodVolumeBackups("none"), limittest.PackedText(t, "null\n"))
	b.putBackup(storedBackup("damaged", velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupPodVolumeBackups("damaged"), limittest.PackedText(t, string(data))[:20])
	b.runPass()
	var got velerov1.PodVolumeBackup
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "b-1"}, &got))
	uid := b.getBackup("b").UID
	require.Equal(t, uid, got.OwnerReferences[0].UID)
	require.Equal(t, string(uid), got.Labels[velerov1.LabelBackupUID])
	require.Equal(t, longName, got.Spec.BackupStorageLocation)
	require.Equal(t, "snap", got.Status.SnapshotID)
	require.NotNil(t, b.getBackup("none"))
	require.NotNil(t, b.getBackup("damaged"))
}

func existingBackup(name, location string, phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{velerov1.LabelStorageLocation: velerov1.LabelValue(location)},
	}}
	b.Status.Phase = phase
	return b
}

func TestRemovesOrphans(t *testing.T) {
	b := newBed(t,
		existingBackup("gone", longName, velerov1.BackupPhaseCompleted), existingBackup("gone-pf", longName, velerov1.BackupPhasePartiallyFailed),
		existingBackup("failed", longName, velerov1.BackupPhaseFailed), existingBackup("running", longName, velerov1.BackupPhaseInProgress),
		existingBackup("deleting", longName, velerov1.BackupPhaseDeleting), existingBackup("elsewhere", "other", velerov1.BackupPhaseCompleted),
		existingBackup("there", longName, velerov1.BackupPhaseCompleted), existingBackup("log-left", longName, velerov1.BackupPhaseCompleted),
	)
	b.putBackup(storedBackup("there", velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupLog("log-left"), []byte("x"))
	b.runPass()
	for _, name := range []string{"gone", "gone-pf"} {
		require.Nil(t, b.getBackup(name), name)
	}
	for _, name := range []string{"failed", "running", "deleting", "elsewhere", "there", "log-left"} {
		require.NotNil(t, b.getBackup(name), name)
	}
}

// A Backup that changed after it was listed may be in the bucket by now, one that is gone needs no removal,
// and one that cannot be read is left to the next sync.
func TestAnOrphanThatChangesDuringASyncStays(t *testing.T) {
	for name, meanwhile := range map[string]func(c client.WithWatch) error{
		"changes": func(c client.WithWatch) error {
			o := &velerov1.Backup{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "b"}, o)
			o.Labels["new"] = "x"
			return errors.Join(err, c.Update(t.Context(), o))
		},
		"goes": func(c client.WithWatch) error {
			return c.Delete(t.Context(), existingBackup("b", longName, ""))
		},
		"unread": func(client.WithWatch) error { return errors.New("no answer") },
	} {
		b := newBed(t, existingBackup("b", longName, velerov1.BackupPhaseCompleted))
		base, ok := b.client.(client.WithWatch)
		require.True(t, ok)
		s := b.newReplica(interceptor.NewClient(base, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, backup := obj.(*velerov1.Backup); backup {
					if err := meanwhile(base); err != nil {
						return err
					}
				}
				return c.Get(ctx, key, obj, opts...)
			},
		}))
		err := s.Pass(t.Context())
		require.Equal(t, name == "unread", err != nil, name)
		require.Equal(t, name == "goes", b.getBackup("b") == nil, name)
	}
}

// A schedule with a mistake leaves many Backups that failed validation, which have no directory. They are read
// once, and again when they change; what is kept of them goes with them.
func TestBackupsThatNeedNoDirectoryAreReadOnce(t *testing.T) {
	b := newBed(t, existingBackup("invalid", longName, velerov1.BackupPhaseFailedValidation), existingBackup("runs", longName, velerov1.BackupPhaseInProgress))
	base, ok := b.client.(client.WithWatch)
	require.True(t, ok)
	var reads []string
	b.s = b.newReplica(interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, backup := obj.(*velerov1.Backup); backup {
				reads = append(reads, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	readsOfSync := func() []string {
		reads = nil
		b.clock.Step(time.Minute)
		b.runPass()
		return reads
	}
	require.ElementsMatch(t, []string{"invalid", "runs"}, readsOfSync())
	require.Empty(t, readsOfSync())
	ended := b.getBackup("runs")
	ended.Status.Phase = velerov1.BackupPhaseCompleted
	require.NoError(t, b.client.Update(t.Context(), ended))
	require.Equal(t, []string{"runs"}, readsOfSync())
	require.Nil(t, b.getBackup("runs"), "its directory is gone")
	require.NoError(t, b.client.Delete(t.Context(), b.getBackup("invalid")))
	require.Empty(t, readsOfSync())
	require.Empty(t, b.s.settled)
}

// TestUnreadableBucketRemovesNothing is the accident that would be worst.
func TestUnreadableBucketRemovesNothing(t *testing.T) {
	b := newBed(t, existingBackup("b", longName, velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpList {
			return errors.New("timeout")
		}
		return nil
	})
	require.ErrorContains(t, b.s.Pass(t.Context()), longName)
	require.NotNil(t, b.getBackup("b"))
	var loc velerov1.BackupStorageLocation
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: longName}, &loc))
	require.Nil(t, loc.Status.LastSyncedTime)
}

func TestABackupDeletedMeanwhileDoesNotComeBack(t *testing.T) {
	b := newBed(t)
	b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpStat && key == layout.BackupMetadata("b") {
			return objectstore.ErrNotFound
		}
		return nil
	})
	b.runPass()
	require.Nil(t, b.getBackup("b"))
}

func TestOnlyAvailableLocationsWithAPeriodAreSynced(t *testing.T) {
	b := newBed(t)
	var loc velerov1.BackupStorageLocation
	key := client.ObjectKey{Namespace: "velero", Name: longName}
	for _, change := range []func(){
		func() { loc.Status.Phase = velerov1.LocationPhaseUnavailable },
		func() { loc.Status.Phase = "" },
		func() {
			loc.Status.Phase, loc.Spec.BackupSyncPeriod = velerov1.LocationPhaseAvailable, &metav1.Duration{}
		},
	} {
		require.NoError(t, b.client.Get(t.Context(), key, &loc))
		change()
		require.NoError(t, b.client.Update(t.Context(), &loc))
		b.runPass()
		require.Zero(t, b.store.Calls(memstore.OpList))
	}
}
