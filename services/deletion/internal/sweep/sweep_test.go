package sweep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const grace = 2 * time.Second

type bed struct {
	t        *testing.T
	csi      snapshots
	client   client.WithWatch
	store    *memstore.Store
	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
	readOnly bool
	s        *Sweeper
}

// snapshots are the CSI snapshots of a cluster, of which it notes whose are removed.
type snapshots struct {
	mu      sync.Mutex
	refused error
	ended   []csisnapshot.Owner
}

func (s *snapshots) End(_ context.Context, of csisnapshot.Owner, _ func(types.NamespacedName) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.ended = append(s.ended, of)
	}
	return s.refused
}

// Open implements Opener.
func (b *bed) Open(_ context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	if loc.Name == "away" {
		return nil, errors.New("no such bucket")
	}
	if b.readOnly {
		return objectstore.ReadOnly(b.store, layout.RestoresDir), nil
	}
	return b.store, nil
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default", UID: "loc"}}
	loc.Status.Phase = velerov1.LocationPhaseAvailable
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	b := &bed{
		t: t, store: memstore.New(), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), registry: prometheus.NewRegistry(),
		client: fake.NewClientBuilder().WithScheme(kube.Scheme()).
			WithIndex(&velerov1.Backup{}, "metadata.name", byName).WithIndex(&velerov1.Restore{}, "metadata.name", byName).
			WithObjects(append(objects, loc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "here"}})...).Build(),
	}
	b.store.Clock = b.clock
	b.s = b.newSweeper(NewMetrics(b.registry))
	return b
}

func (b *bed) newSweeper(m *Metrics) *Sweeper {
	return New(Config{
		Reader: b.client, Namespace: "velero", Opener: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler),
		Tracer: noop.NewTracerProvider().Tracer(""), Metrics: m, Interval: time.Hour, Grace: grace, CSI: &b.csi,
	})
}

// sweepTwice makes a pass, and another one when what is gone has been gone for the grace.
func (b *bed) sweepTwice() {
	b.t.Helper()
	b.runPass()
	b.clock.Step(grace)
	b.runPass()
}

func (b *bed) runPass() {
	b.t.Helper()
	require.NoError(b.t, b.s.Pass(b.t.Context()))
}

func newBackup(name, namespace, uid string, phase velerov1.BackupPhase) *velerov1.Backup {
	k := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	k.Status.Phase = phase
	return k
}

func newRestore(name, uid string, phase velerov1.RestorePhase) *velerov1.Restore {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID(uid)}}
	r.Status.Phase = phase
	return r
}

func (b *bed) putOwner(name, uid, cluster string) {
	b.t.Helper()
	data, err := layout.Owner{BackupUID: uid, ClusterUID: cluster}.Encode()
	require.NoError(b.t, err)
	b.store.Set(layout.OwnerFile(name), data)
}

func (b *bed) ownRestore(name, uid, cluster string) {
	b.t.Helper()
	data, err := layout.RestoreOwner{RestoreUID: uid, ClusterUID: cluster}.Encode()
	require.NoError(b.t, err)
	b.store.Set(layout.RestoreOwnerFile(name, uid), data)
	b.putKeys("restores/"+name+"/records/"+uid+"/0000000001-0000000001", "restores/"+name+"/restore-"+name+"-logs.gz")
}

func (b *bed) putKeys(keys ...string) {
	for _, key := range keys {
		b.store.Set(key, []byte("x"))
	}
}

// putParts leaves what a runner has written before it composes.
func (b *bed) putParts(name, uid string) {
	part := layout.Part(name, uid, 1, "u", 0, 0)
	b.putKeys(part, layout.Sidecar(part), layout.Checkpoint(name, uid, 1, 1), layout.Composition(name, uid))
}

func (b *bed) putCommitted(name string) {
	b.putKeys(layout.BackupMetadata(name), layout.BackupTarball(name), layout.BackupLog(name), layout.BackupManifest(name))
}

// keysUnder returns the keys with a prefix.
func (b *bed) keysUnder(prefix string) []string {
	return slices.DeleteFunc(b.store.Keys(), func(k string) bool { return !strings.HasPrefix(k, prefix) })
}

func TestPartsOfEndedBackupsAreRemoved(t *testing.T) {
	phases := []velerov1.BackupPhase{"Completed", "PartiallyFailed", "Failed"}
	b := newBed(t)
	for _, phase := range phases {
		name := "b-" + strings.ToLower(string(phase))
		require.NoError(t, b.client.Create(t.Context(), newBackup(name, "velero", "u", phase)))
		b.putOwner(name, "u", "here")
		b.putCommitted(name)
		b.putParts(name, "u")
		b.store.LeaveUpload(layout.BackupTarball(name))
	}
	b.runPass()
	for _, phase := range phases {
		name := "b-" + strings.ToLower(string(phase))
		require.Equal(t, []string{
			layout.BackupLog(name), layout.BackupTarball(name), layout.OwnerFile(name), layout.BackupManifest(name), layout.BackupMetadata(name),
		}, b.keysUnder(layout.BackupDir(name)))
	}
	require.Empty(t, b.store.Uploads())
	require.InDelta(t, 12, testutil.ToFloat64(b.s.Metrics.objects.WithLabelValues("default")), 0)
	require.InDelta(t, 12, testutil.ToFloat64(b.s.Metrics.bytes.WithLabelValues("default")), 0)
	require.InDelta(t, 3, testutil.ToFloat64(b.s.Metrics.uploads.WithLabelValues("default")), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.s.Metrics.passes.WithLabelValues("default", "complete")), 0)
}

// A Backup that exists and has not ended needs everything, however long ago it wrote, and in
// whatever namespace it is.
func TestLiveBackupsAreNotTouched(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		"", "New", "Queued", "ReadyToStart", "InProgress", "WaitingForPluginOperations", "WaitingForPluginOperationsPartiallyFailed",
		"Finalizing", "FinalizingPartiallyFailed", "Deleting",
	} {
		for _, namespace := range []string{"velero", "another-installation"} {
			b := newBed(t, newBackup("b", namespace, "u", phase), newBackup("reserved", namespace, "r", phase))
			b.putOwner("b", "u", "here")
			b.putParts("b", "u")
			b.putOwner("reserved", "r", "here")
			b.store.LeaveUpload(layout.BackupTarball("b"))
			before := b.store.Keys()
			b.sweepTwice()
			b.clock.Step(2 * time.Hour)
			b.sweepTwice()
			require.Equal(t, before, b.store.Keys(), phase)
			require.Len(t, b.store.Uploads(), 1)
		}
	}
}

func TestTheDirectoryOfABackupThatIsGoneIsRemovedOwnerLast(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "u", "here")
	b.putParts("b", "u")
	b.putParts("b", "older")
	b.putKeys(layout.BackupTarball("b"), layout.BackupLog("b"))
	b.store.LeaveUpload(layout.BackupTarball("b"))
	b.store.LeaveUpload(layout.BackupTarball("b2"))
	b.putKeys("backups/b.tar.gz", "backups/b2/velero-backup.json")
	before := b.store.Keys()
	var mu sync.Mutex
	var order []string
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpDelete {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, key)
		}
		return nil
	})
	b.runPass()
	require.Equal(t, before, b.store.Keys(), "a runner may not have noticed yet")
	b.clock.Step(grace)
	b.runPass()
	require.Equal(t, []string{"backups/b.tar.gz", "backups/b2/velero-backup.json"}, b.store.Keys())
	require.Equal(t, layout.OwnerFile("b"), order[len(order)-1])
	require.Equal(t, []string{layout.BackupTarball("b2")}, b.store.Uploads(), "whose backup is unknown")
}

// The CSI snapshots of a backup whose object was deleted while no runner ran are removed before the
// directory with the record of them.
func TestTheSnapshotsOfABackupThatIsGoneAreRemoved(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "u", "here")
	b.putParts("b", "u")
	b.putOwner("committed", "c", "here")
	b.putCommitted("committed")
	b.csi.refused = errors.New("forbidden")
	b.sweepTwice()
	require.Contains(t, b.store.Keys(), layout.OwnerFile("b"))
	b.csi.refused = nil
	b.clock.Step(time.Hour)
	b.sweepTwice()
	require.NotContains(t, b.store.Keys(), layout.OwnerFile("b"))
	require.Equal(t, []csisnapshot.Owner{{Name: "b", UID: "u"}}, slices.Compact(b.csi.ended))
}

// A backup that was synced has another UID than its data, and stays.
func TestACommittedBackupKeepsEverythingButParts(t *testing.T) {
	b := newBed(t, newBackup("b", "velero", "synced", "Completed"))
	b.putOwner("b", "u", "here")
	b.putParts("b", "u")
	b.putCommitted("b")
	b.putOwner("gone", "g", "here")
	b.putParts("gone", "g")
	b.putCommitted("gone")
	b.sweepTwice()
	for _, name := range []string{"b", "gone"} {
		require.Len(t, b.keysUnder(layout.BackupDir(name)), 5)
		require.Empty(t, b.keysUnder(layout.PartsDir(name)))
	}
}

func TestPartsOfAnEarlierObjectOfThatNameAreRemoved(t *testing.T) {
	b := newBed(t, newBackup("b", "velero", "now", "InProgress"))
	b.putOwner("b", "now", "here")
	b.putParts("b", "now")
	b.putParts("b", "before")
	b.sweepTwice()
	require.Empty(t, b.keysUnder(layout.PartsPrefix("b", "before")))
	require.Len(t, b.keysUnder(layout.PartsPrefix("b", "now")), 4)
	require.Contains(t, b.store.Keys(), layout.OwnerFile("b"))
}

// Its runner clears the directory and reserves it anew; the sweep would be in its way.
func TestADirectoryIsLeftToANewBackupOfThatName(t *testing.T) {
	b := newBed(t, newBackup("b", "velero", "now", "ReadyToStart"))
	b.putOwner("b", "before", "here")
	b.putParts("b", "before")
	before := b.store.Keys()
	b.sweepTwice()
	require.Equal(t, before, b.store.Keys())
	require.NoError(t, b.client.Delete(t.Context(), newBackup("b", "velero", "now", "")))
	require.NoError(t, b.client.Create(t.Context(), newBackup("b", "velero", "now", "Failed")))
	b.clock.Step(time.Hour)
	b.sweepTwice()
	require.Empty(t, b.store.Keys(), "it ended without a word in the bucket")
}

// TestWhatIsNotOursIsNeverTouched: other clusters, Velero, damaged files.
func TestWhatIsNotOursIsNeverTouched(t *testing.T) {
	b := newBed(t)
	for name, owner := range map[string]string{
		"foreign": `{"backupUID":"f","clusterUID":"there"}`, "no-cluster": `{"backupUID":"u"}`, "damaged": `{"backupUID":`, "empty": ``,
		"huge": `{"backupUID":"u","clusterUID":"here"}` + strings.Repeat(" ", layout.MaxOwnerBytes),
	} {
		b.store.Set(layout.OwnerFile(name), []byte(owner))
		b.putParts(name, "f")
		b.putKeys(layout.BackupTarball(name))
		b.store.LeaveUpload(layout.BackupTarball(name))
	}
	b.putOwner("foreign-done", "f", "there")
	b.putCommitted("foreign-done")
	b.putParts("foreign-done", "f")
	b.putKeys("backups/velero/velero.tar.gz", "backups/velero/velero-logs.gz", "backups/parts-only/parts/u/1", "backups/Strange Name/holdfast-owner.json")
	b.putKeys("backups/file", "metadata/x", "kopia/ns/repo", "restores/r/restore-r-logs.gz", "restores/r/records/no-owner/1")
	b.ownRestore("foreign", "r", "there")
	b.ownRestore("mistaken", "r", "here")
	b.store.Set(layout.RestoreOwnerFile("mistaken", "r"), []byte(`{"restoreUID":"other","clusterUID":"here"}`))
	b.store.LeaveUpload("kopia/ns/repo/p1")
	before, uploads := b.store.Keys(), b.store.Uploads()
	b.sweepTwice()
	b.clock.Step(48 * time.Hour)
	b.sweepTwice()
	require.Equal(t, before, b.store.Keys())
	require.Equal(t, uploads, b.store.Uploads())
	require.Zero(t, b.store.Calls(memstore.OpDelete))
	for reason, n := range map[string]float64{"foreign": 4, "unreadable": 4, "unowned": 3} {
		require.InDelta(t, n, testutil.ToFloat64(b.s.Metrics.untouched.WithLabelValues("default", reason)), 0, reason)
	}
}

// They are the only record of the post hooks that a backup owes which ended without its runner.
func TestRecordsOfABackupThatOwesPostHooksStay(t *testing.T) {
	o := newBackup("b", "velero", "u", velerov1.BackupPhaseFailed)
	require.NoError(t, mark.SetPostHooks(o, mark.PostHooks{Owed: true}))
	b := newBed(t, o)
	b.putOwner("b", "u", "here")
	b.putCommitted("b")
	b.putParts("b", "u")
	b.sweepTwice()
	require.Len(t, b.keysUnder(layout.PartsDir("b")), 4)
	mark.ClearPostHooks(o)
	require.NoError(t, b.client.Update(t.Context(), o))
	b.clock.Step(time.Hour)
	b.sweepTwice()
	require.Empty(t, b.keysUnder(layout.PartsDir("b")))
}

// They are the only record of how the objects are resumed.
func TestRecordsOfARestoreThatLeftObjectsPausedStay(t *testing.T) {
	o := newRestore("done", "d", "Failed")
	require.NoError(t, mark.SetPaused(o, "default"))
	b := newBed(t, o)
	b.ownRestore("done", "d", "here")
	b.runPass()
	require.Len(t, b.keysUnder("restores/done/records/"), 2)
	mark.ClearPaused(o)
	require.NoError(t, b.client.Update(t.Context(), o))
	b.clock.Step(time.Hour)
	b.runPass()
	require.Empty(t, b.keysUnder("restores/done/records/"))
}

func TestRecordsOfRestores(t *testing.T) {
	b := newBed(t, newRestore("done", "d", "Completed"), newRestore("failed", "f", "PartiallyFailed"), newRestore("running", "r", "InProgress"),
		newRestore("new", "n", ""), newRestore("again", "second", "InProgress"))
	for name, uid := range map[string]string{"done": "d", "failed": "f", "running": "r", "new": "n", "gone": "g"} {
		b.ownRestore(name, uid, "here")
	}
	b.ownRestore("again", "first", "here")
	b.ownRestore("again", "second", "here")
	b.runPass()
	require.Empty(t, b.keysUnder("restores/done/records/"))
	require.Len(t, b.keysUnder("restores/gone/records/"), 2, "its runner may not have noticed yet")
	b.clock.Step(grace)
	b.runPass()
	for _, prefix := range []string{"restores/done/records/", "restores/failed/records/", "restores/gone/records/", "restores/again/records/first/"} {
		require.Empty(t, b.keysUnder(prefix), prefix)
	}
	for _, prefix := range []string{"restores/running/records/", "restores/new/records/", "restores/again/records/second/"} {
		require.Len(t, b.keysUnder(prefix), 2, prefix)
	}
	require.Len(t, b.keysUnder("restores/done/"), 1, "the published files stay")
}

func TestARecordWrittenAfterTheSweepIsRemoved(t *testing.T) {
	b := newBed(t, newRestore("done", "d", "Completed"), newRestore("running", "r", "InProgress"))
	for name, uid := range map[string]string{"done": "d", "running": "r", "gone": "g"} {
		b.store.Set(layout.RestoreRecords(name, uid)+"record-0000000001-0000000001", []byte("late"))
	}
	b.runPass()
	b.clock.Step(grace)
	b.runPass()
	require.Empty(t, b.keysUnder("restores/done/"))
	require.Len(t, b.keysUnder("restores/running/"), 1)
	require.Len(t, b.keysUnder("restores/gone/"), 1, "without an owner file nobody knows whose it is")
}

func TestUploads(t *testing.T) {
	b := newBed(t, newBackup("live", "velero", "l", "InProgress"), newBackup("done", "velero", "d", "Completed"))
	b.putOwner("live", "l", "here")
	b.putOwner("done", "d", "here")
	b.putCommitted("done")
	b.putOwner("foreign", "f", "there")
	b.store.LeaveUpload(layout.BackupTarball("live"))
	b.store.LeaveUpload(layout.BackupTarball("foreign"))
	b.clock.Step(uploadAge)
	b.store.LeaveUpload(layout.Part("live", "l", 2, "u", 0, 0))
	b.store.LeaveUpload(layout.BackupManifest("done"))
	b.store.LeaveUpload(layout.BackupManifest("unknown"))
	b.runPass()
	require.Equal(t, []string{layout.BackupTarball("foreign"), layout.Part("live", "l", 2, "u", 0, 0), layout.BackupManifest("unknown")}, b.store.Uploads())
}

// Policies with the permissions that Velero documents do not allow to list uploads.
func TestWithoutPermissionForUploadsTheRestIsSwept(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "u", "here")
	b.putParts("b", "u")
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpSweep {
			return objectstore.ErrAccess
		}
		return nil
	})
	b.sweepTwice()
	require.Empty(t, b.store.Keys())
}

// TestInterruptedAnywhere kills a sweep before each of its deletes; the next one finds the rest.
func TestInterruptedAnywhere(t *testing.T) {
	for k := 0; ; k++ {
		b := newBed(t, newBackup("done", "velero", "d", "Completed"))
		b.putOwner("b", "u", "here")
		b.putParts("b", "u")
		b.putKeys(layout.BackupTarball("b"))
		b.putOwner("done", "d", "here")
		b.putCommitted("done")
		b.putParts("done", "d")
		b.ownRestore("gone", "g", "here")
		var mu sync.Mutex
		deletes, died := 0, false
		ctx, die := context.WithCancel(t.Context())
		b.store.Inject(func(op memstore.Op, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if op != memstore.OpDelete {
				return nil
			}
			if deletes++; deletes > k {
				died = true
				die()
				return context.Canceled
			}
			return nil
		})
		_ = b.s.Pass(ctx)
		b.clock.Step(grace)
		_ = b.s.Pass(ctx)
		die()
		for _, dir := range []string{layout.BackupDir("b"), layout.RestoreRecords("gone", "g")} {
			if left := b.keysUnder(dir); len(left) > 0 {
				require.True(t, slices.ContainsFunc(left, func(k string) bool { return strings.HasSuffix(k, "owner.json") }), "the next sweep must find %v", left)
			}
		}
		b.store.Inject(nil)
		b.s = b.newSweeper(nil) // another replica
		b.sweepTwice()
		require.Equal(t, []string{
			layout.BackupLog("done"), layout.BackupTarball("done"), layout.OwnerFile("done"), layout.BackupManifest("done"),
			layout.BackupMetadata("done"), "restores/gone/restore-gone-logs.gz",
		}, b.store.Keys(), k)
		if !died {
			require.Greater(t, k, 10)
			return
		}
	}
}

// TestASweepStopsWhenTheDirectoryIsNeeded: what it saw before does not count once time has passed.
func TestASweepStopsWhenTheDirectoryIsNeeded(t *testing.T) {
	for name, change := range map[string]func(*bed){
		"a Backup of that name": func(b *bed) {
			require.NoError(b.t, b.client.Create(b.t.Context(), newBackup("b", "velero", "new", "New")))
		},
		"another owner": func(b *bed) { b.putOwner("b", "new", "here") },
		"a foreign one": func(b *bed) { b.putOwner("b", "new", "there") },
		"a commit":      func(b *bed) { b.putCommitted("b") },
		"no owner":      func(b *bed) { require.NoError(b.t, b.store.Delete(b.t.Context(), layout.OwnerFile("b"))) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.putOwner("b", "u", "here")
			for i := range 500 {
				b.putKeys(layout.Part("b", "u", 1, "u", 0, i))
			}
			b.runPass()
			b.clock.Step(grace)
			var once sync.Once
			b.store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpDelete && strings.Contains(key, "parts/u/") {
					once.Do(func() {
						change(b)
						b.clock.Step(maxCheckAge) // the process was paused
					})
				}
				return nil
			})
			b.runPass()
			require.Greater(t, len(b.keysUnder(layout.PartsPrefix("b", "u"))), 500-2*parallelDeletes, "only what was under way")
			if name != "no owner" {
				require.Contains(t, b.store.Keys(), layout.OwnerFile("b"))
			}
		})
	}
}

func TestManyObjectsInPages(t *testing.T) {
	b := newBed(t, newBackup("b", "velero", "u", "Completed"))
	b.putOwner("b", "u", "here")
	b.putCommitted("b")
	for i := range 2*keyPage + 7 {
		b.putKeys(layout.Part("b", "u", 1, "u", 0, i))
	}
	b.runPass()
	require.Empty(t, b.keysUnder(layout.PartsDir("b")))
}

// TestNothingIsRemovedOnAGuess: an API server or a bucket that does not answer proves nothing.
func TestNothingIsRemovedOnAGuess(t *testing.T) {
	fill := func(b *bed) []string {
		b.putOwner("b", "u", "here")
		b.putParts("b", "u")
		b.ownRestore("r", "g", "here")
		return b.store.Keys()
	}
	t.Run("API server", func(t *testing.T) {
		for _, failing := range []client.ObjectList{&velerov1.BackupList{}, &velerov1.RestoreList{}} {
			b := newBed(t)
			before := fill(b)
			b.s.Reader = interceptor.NewClient(b.client, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					_, backups := list.(*velerov1.BackupList)
					_, wanted := failing.(*velerov1.BackupList)
					if _, location := list.(*velerov1.BackupStorageLocationList); !location && backups == wanted {
						return errors.New("connection refused")
					}
					return c.List(ctx, list, opts...)
				},
			})
			b.sweepTwice()
			prefix := "restores/"
			if _, ok := failing.(*velerov1.BackupList); ok {
				prefix = "backups/"
			}
			require.Subset(t, b.store.Keys(), slices.DeleteFunc(before, func(k string) bool { return !strings.HasPrefix(k, prefix) }))
			require.InDelta(t, 1, testutil.ToFloat64(b.s.Metrics.passes.WithLabelValues("default", "incomplete")), 1)
		}
	})
	t.Run("cluster unknown", func(t *testing.T) {
		b := newBed(t)
		before := fill(b)
		require.NoError(t, b.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}))
		require.ErrorContains(t, b.s.Pass(t.Context()), "identify the cluster")
		require.Equal(t, before, b.store.Keys())
	})
	for _, op := range []memstore.Op{memstore.OpList, memstore.OpGet, memstore.OpStat} {
		t.Run("store "+string(op), func(t *testing.T) {
			b := newBed(t)
			before := fill(b)
			b.store.Inject(func(o memstore.Op, key string) error {
				if o == op && (op != memstore.OpStat || strings.HasSuffix(key, "velero-backup.json")) {
					return errors.New("timeout")
				}
				return nil
			})
			_ = b.s.Pass(t.Context())
			b.clock.Step(grace)
			_ = b.s.Pass(t.Context())
			require.Subset(t, b.store.Keys(), slices.DeleteFunc(before, func(k string) bool { return !strings.HasPrefix(k, "backups/") }))
		})
	}
}

func TestAnUnreachableBucketEndsThePass(t *testing.T) {
	b := newBed(t)
	for _, r := range "abcdefghijklmnopqrstuvwxyz" {
		b.putOwner(string(r), "u", "here")
	}
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpGet {
			return errors.New("timeout")
		}
		return nil
	})
	require.ErrorIs(t, b.s.Pass(t.Context()), errTooMany)
	require.Equal(t, maxFailures, b.store.Calls(memstore.OpGet))
}

func TestTwoSweepersAtOnce(t *testing.T) {
	b := newBed(t, newBackup("done", "velero", "d", "Completed"))
	b.putOwner("b", "u", "here")
	b.putOwner("done", "d", "here")
	b.putCommitted("done")
	for i := range 300 {
		b.putKeys(layout.Part("b", "u", 1, "u", 0, i), layout.Part("done", "d", 1, "u", 0, i))
	}
	others := []*Sweeper{b.newSweeper(nil), b.newSweeper(nil)}
	for range 2 {
		var group sync.WaitGroup
		for _, s := range others {
			group.Go(func() {
				if err := s.Pass(t.Context()); err != nil {
					t.Errorf("sweep: %v", err)
				}
			})
		}
		group.Wait()
		b.clock.Step(grace)
	}
	require.Len(t, b.store.Keys(), 5)
	require.Empty(t, b.keysUnder(layout.PartsDir("done")))
}

func TestWhichLocationsAndWhen(t *testing.T) {
	b := newBed(t)
	away := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "away", UID: "away"}}
	away.Status.Phase = velerov1.LocationPhaseAvailable
	require.NoError(t, b.client.Create(t.Context(), away))
	lists := func() int { return b.store.Calls(memstore.OpList) }
	require.ErrorContains(t, b.s.Pass(t.Context()), "no such bucket")
	require.Equal(t, 3, lists(), "the other one was swept")
	b.runPass()
	require.Equal(t, 3, lists(), "not due")
	require.NoError(t, b.client.Delete(t.Context(), away))
	b.clock.Step(time.Hour)
	b.runPass()
	require.Equal(t, 6, lists())

	var loc velerov1.BackupStorageLocation
	key := client.ObjectKey{Namespace: "velero", Name: "default"}
	require.NoError(t, b.client.Get(t.Context(), key, &loc))
	loc.Status.Phase = velerov1.LocationPhaseUnavailable
	require.NoError(t, b.client.Update(t.Context(), &loc))
	b.clock.Step(time.Hour)
	b.runPass()
	require.Equal(t, 6, lists())
}

// Restores keep their records in a ReadOnly location too; they stayed there for ever.
func TestOfAReadOnlyLocationTheRecordsOfRestoresAreSwept(t *testing.T) {
	b := newBed(t, newRestore("done", "d", "Completed"), newBackup("b", "velero", "u", "Completed"))
	b.readOnly = true
	var loc velerov1.BackupStorageLocation
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "default"}, &loc))
	loc.Spec.AccessMode = velerov1.LocationModeReadOnly
	require.NoError(t, b.client.Update(t.Context(), &loc))
	b.ownRestore("done", "d", "here")
	b.ownRestore("gone", "g", "here")
	b.ownRestore("another", "a", "elsewhere")
	b.putOwner("b", "u", "here")
	b.putParts("b", "u")
	backups := b.keysUnder(layout.BackupsDir)
	b.sweepTwice()
	require.Empty(t, b.keysUnder("restores/done/records/"))
	require.Empty(t, b.keysUnder("restores/gone/records/"))
	require.Len(t, b.keysUnder("restores/another/records/"), 2)
	require.Equal(t, backups, b.keysUnder(layout.BackupsDir))
}

// The grace of a backup that took the directory of one of its name counts from its own end.
func TestABackupOfTheSameNameHasAGraceOfItsOwn(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "first", "here")
	b.runPass()
	b.clock.Step(grace)
	for _, key := range b.keysUnder(layout.BackupDir("b")) {
		require.NoError(t, b.store.Delete(t.Context(), key))
	}
	b.putOwner("b", "second", "here")
	before := b.keysUnder(layout.BackupDir("b"))
	b.runPass()
	require.Equal(t, before, b.keysUnder(layout.BackupDir("b")))
}

// A pass that fails before it reaches a directory does not restart the grace of that directory.
func TestAPassThatFailsForgetsNoGrace(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "u", "here")
	b.runPass()
	b.clock.Step(grace)
	b.store.Inject(func(memstore.Op, string) error { return errors.New("timeout") })
	require.ErrorContains(t, b.s.Pass(t.Context()), "timeout")
	b.store.Inject(nil)
	b.clock.Step(time.Hour)
	b.runPass()
	require.Empty(t, b.keysUnder(layout.BackupDir("b")))
}

// TestRun sweeps as soon as a location is available, not an interval later.
func TestRun(t *testing.T) {
	b := newBed(t, newBackup("done", "velero", "d", "Completed"))
	b.putOwner("done", "d", "here")
	b.putCommitted("done")
	b.putParts("done", "d")
	var loc velerov1.BackupStorageLocation
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "default"}, &loc))
	loc.Status.Phase = ""
	require.NoError(t, b.client.Update(t.Context(), &loc))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.s.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	require.Len(t, b.keysUnder(layout.PartsDir("done")), 4)
	loc.Status.Phase = velerov1.LocationPhaseAvailable
	require.NoError(t, b.client.Update(t.Context(), &loc))
	require.Eventually(t, func() bool { b.clock.Step(time.Second); return len(b.keysUnder(layout.PartsDir("done"))) == 0 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestExpiredPlansAreRemovedAndOthersStay(t *testing.T) {
	b := newBed(t)
	for id, lifetime := range map[string]time.Duration{"expired": 0, "valid": time.Hour} {
		w := storedplan.NewWriter(t.TempDir())
		require.NoError(t, w.Sort())
		h := &storedplan.Header{ID: id, Kind: storedplan.KindBackup, Expires: b.clock.Now().Add(lifetime)}
		require.NoError(t, w.Store(t.Context(), b.store, h))
		require.NoError(t, w.Close())
	}
	b.runPass()
	require.Equal(t, []string{layout.PlanHeader("valid"), layout.PlanRows("valid")}, b.keysUnder(layout.PlansDir))
}
