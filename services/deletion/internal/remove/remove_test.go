package remove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		beAVendor()
	}
	goleak.VerifyTestMain(m)
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type bed struct {
	t        *testing.T
	client   client.WithWatch
	store    *memstore.Store
	clock    *clocktesting.FakeClock
	location *velerov1.BackupStorageLocation
	held     bool // another live instance holds every claim
	confirm  func() error
	stopped  context.Context // of the process: once it has ended, a job continues when its own has
	lose     context.CancelCauseFunc
	r        *replica
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	b := &bed{
		t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(), store: memstore.New(),
		clock:    clocktesting.NewFakeClock(start),
		location: &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default"}},
	}
	b.location.Status.Phase = velerov1.LocationPhaseAvailable
	b.r = b.newRemover(b.client, b)
	b.r.Tries = 1
	return b
}

// Get and Open implement Locations.
func (b *bed) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	if b.location == nil || name != b.location.Name {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return b.location, nil
}

func (b *bed) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	return b.store, nil
}

// Ready and those that follow implement engine.Instance.
func (b *bed) Ready() bool { return true }

// Expired implements engine.Instance.
func (b *bed) Expired() <-chan string { return nil }

// Acquire implements engine.Instance.
func (b *bed) Acquire(_ context.Context, obj metav1.Object) (claim.Claim, error) {
	if b.held {
		return claim.Claim{}, &claim.HeldError{Owner: "other"}
	}
	c, _, err := claim.Parse(obj)
	return claim.Claim{Owner: "me", Epoch: c.Epoch + 1}, err
}

// Held implements engine.Instance.
func (b *bed) Held(obj metav1.Object) error {
	_, err := b.Acquire(context.Background(), obj)
	return err
}

// Guard implements engine.Instance.
func (b *bed) Guard(ctx context.Context, _ client.Object, _ func(client.Object)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	b.lose = cancel
	return ctx, func() { cancel(context.Canceled) }
}

// Confirm implements engine.Instance.
func (b *bed) Confirm(ctx context.Context, _ client.Object) error {
	if b.confirm != nil {
		return b.confirm()
	}
	if b.stopped != nil && b.stopped.Err() != nil {
		<-ctx.Done()
	}
	return context.Cause(ctx)
}

func newBackup(phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "b-uid"}}
	b.Spec.StorageLocation = "default"
	b.Status.Phase = phase
	b.Status.StartTimestamp = &metav1.Time{Time: start.Add(-time.Hour)}
	return b
}

func newRequest(name string) *velerov1.DeleteBackupRequest {
	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start),
	}}
	d.Spec.BackupName = "b"
	return d
}

// fillBucket writes what a backup leaves in a bucket.
func (b *bed) fillBucket(of *velerov1.Backup) {
	b.t.Helper()
	data, err := json.Marshal(of)
	require.NoError(b.t, err)
	b.store.Set(layout.BackupMetadata("b"), data)
	for _, key := range []string{layout.BackupTarball("b"), layout.BackupLog("b"), layout.BackupManifest("b"), layout.Part("b", "b-uid", 1, "u", 0, 0)} {
		b.store.Set(key, []byte("x"))
	}
	b.reserveDirectory(string(of.UID))
	b.store.Set("backups/b2/velero-backup.json", []byte("neighbour"))
	b.store.Set("backups/b.tar.gz", []byte("neighbour"))
}

func (b *bed) reserveDirectory(uid string) {
	b.t.Helper()
	data, err := layout.Owner{BackupUID: uid, ClusterUID: "c"}.Encode()
	require.NoError(b.t, err)
	b.store.Set(layout.OwnerFile("b"), data)
}

var neighbours = []string{"backups/b.tar.gz", "backups/b2/velero-backup.json"}

func (b *bed) processRequest(name string) Outcome {
	b.t.Helper()
	outcome, err := b.r.Process(b.t.Context(), name)
	require.NoError(b.t, err)
	return outcome
}

func (b *bed) readBackup() *velerov1.Backup {
	var got velerov1.Backup
	return findObject(b, &got, "b")
}

func (b *bed) readRequest(name string) *velerov1.DeleteBackupRequest {
	var got velerov1.DeleteBackupRequest
	return findObject(b, &got, name)
}

// findObject returns nil for an object that does not exist.
func findObject[T client.Object](b *bed, obj T, name string) T {
	b.t.Helper()
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, obj)
	if apierrors.IsNotFound(err) {
		var none T
		return none
	}
	require.NoError(b.t, err)
	return obj
}

func TestDeletesEverythingOfTheBackup(t *testing.T) {
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r"}}
	restore.Spec.BackupName = "b"
	other := restore.DeepCopy()
	other.Name, other.Spec.BackupName = "other", "b2"
	failed := newRequest("failed-before")
	failed.Status.Phase = velerov1.DeleteBackupRequestPhaseProcessed
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), failed, restore, other)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	var mu sync.Mutex
	var order []string
	b.store.Inject(func(op memstore.Op, key string) error {
		if op != memstore.OpDelete {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if order = append(order, key); len(order) > 1 {
			return nil
		}
		assert.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
		d := b.readRequest("d")
		assert.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase)
		assert.Equal(t, "b", d.Labels[velerov1.LabelBackupName])
		assert.Equal(t, "b-uid", d.Labels[velerov1.LabelBackupUID])
		held, _, err := claim.Parse(d)
		assert.NoError(t, err)
		assert.Equal(t, "me", held.Owner)
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())
	require.Equal(t, layout.BackupMetadata("b"), order[len(order)-1], "the marker goes last")
	require.Nil(t, b.readBackup())
	require.Nil(t, b.readRequest("d"))
	require.Nil(t, b.readRequest("failed-before"))
	var r velerov1.Restore
	require.Nil(t, findObject(b, &r, "r"))
	require.NotNil(t, findObject(b, &r, "other"))
	require.Equal(t, Done, b.processRequest("d"), "a request that is gone is no error")
}

func TestFailureKeepsTheBackupListed(t *testing.T) {
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r"}}
	restore.Spec.BackupName = "b"
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restore)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpDelete && key == layout.BackupTarball("b") {
			return errors.New("object is locked")
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	d := b.readRequest("d")
	require.Equal(t, velerov1.DeleteBackupRequestPhaseProcessed, d.Status.Phase)
	require.Len(t, d.Status.Errors, 1)
	require.Contains(t, d.Status.Errors[0], "object is locked")
	require.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
	require.Contains(t, b.store.Keys(), layout.BackupMetadata("b"), "still known in the bucket")
	require.NotContains(t, b.store.Keys(), layout.BackupLog("b"), "what could go is gone")
	var r velerov1.Restore
	require.Nil(t, findObject(b, &r, "r"), "restores go all the same")

	// The reason is gone, it is requested again.
	b.store.Inject(nil)
	require.NoError(t, b.client.Create(t.Context(), newRequest("again")))
	require.Equal(t, Done, b.processRequest("again"))
	require.Equal(t, neighbours, b.store.Keys())
	require.Nil(t, b.readBackup())
	require.Nil(t, b.readRequest("d"))
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bed, *velerov1.Backup, *velerov1.DeleteBackupRequest)
		says   string
	}{
		"no name":  {func(_ *bed, _ *velerov1.Backup, d *velerov1.DeleteBackupRequest) { d.Spec.BackupName = "" }, "spec.backupName is required"},
		"bad name": {func(_ *bed, _ *velerov1.Backup, d *velerov1.DeleteBackupRequest) { d.Spec.BackupName = "../b" }, "spec.backupName"},
		"absent":   {func(_ *bed, _ *velerov1.Backup, d *velerov1.DeleteBackupRequest) { d.Spec.BackupName = "absent" }, "backup not found"},
		"other object": {func(_ *bed, _ *velerov1.Backup, d *velerov1.DeleteBackupRequest) {
			d.Labels = map[string]string{velerov1.LabelBackupUID: "x"}
		}, "another one"},
		"running": {func(_ *bed, k *velerov1.Backup, _ *velerov1.DeleteBackupRequest) {
			k.Status.Phase = velerov1.BackupPhaseInProgress
		}, "backup is still in progress"},
		"finalizing": {func(_ *bed, k *velerov1.Backup, _ *velerov1.DeleteBackupRequest) {
			k.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
			_ = claim.Set(k, claim.Claim{Owner: "runner", Epoch: 1})
		}, "backup is still in progress"},
		"no location": {func(b *bed, _ *velerov1.Backup, _ *velerov1.DeleteBackupRequest) { b.location = nil }, `"default" not found`},
		"read-only": {func(b *bed, _ *velerov1.Backup, _ *velerov1.DeleteBackupRequest) {
			b.location.Spec.AccessMode = "ReadOnly"
		}, "read-only"},
		"unavailable": {func(b *bed, _ *velerov1.Backup, _ *velerov1.DeleteBackupRequest) {
			b.location.Status.Phase, b.location.Status.Message = velerov1.LocationPhaseUnavailable, "no bucket"
		}, "unavailable: no bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			k, d := newBackup(velerov1.BackupPhaseCompleted), newRequest("d")
			tc.change(b, k, d)
			require.NoError(t, b.client.Create(t.Context(), k))
			require.NoError(t, b.client.Create(t.Context(), d))
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			keys := b.store.Keys()
			require.Equal(t, Done, b.processRequest("d"))
			got := b.readRequest("d")
			require.Equal(t, velerov1.DeleteBackupRequestPhaseProcessed, got.Status.Phase)
			require.Len(t, got.Status.Errors, 1)
			require.Contains(t, got.Status.Errors[0], tc.says)
			require.Equal(t, k.Status.Phase, b.readBackup().Status.Phase)
			require.Equal(t, keys, b.store.Keys())
		})
	}
}

func TestDataOfAnotherBackupStays(t *testing.T) {
	theirs := newBackup(velerov1.BackupPhaseCompleted)
	theirs.UID, theirs.Status.StartTimestamp = "their-uid", &metav1.Time{Time: start.Add(-24 * time.Hour)}
	for name, setup := range map[string]func(*bed){
		"finished": func(b *bed) { b.fillBucket(theirs) },
		"still being written": func(b *bed) {
			b.reserveDirectory("their-uid")
			b.store.Set(layout.Part("b", "their-uid", 1, "u", 0, 0), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, newBackup(velerov1.BackupPhaseFailed), newRequest("d"))
			setup(b)
			keys := b.store.Keys()
			require.Equal(t, Done, b.processRequest("d"))
			require.Nil(t, b.readBackup())
			require.Nil(t, b.readRequest("d"))
			require.Equal(t, keys, b.store.Keys())
		})
	}
}

// Two clusters that share a bucket run the same schedule in the same second: the one that found the
// name taken must not take the other's data along when its failed object is deleted.
func TestDataOfABackupStartedInTheSameSecondStays(t *testing.T) {
	theirs := newBackup(velerov1.BackupPhaseCompleted)
	theirs.UID, theirs.Status.CompletionTimestamp = "their-uid", &metav1.Time{Time: start}
	ours := newBackup(velerov1.BackupPhaseFailed)
	ours.Status.CompletionTimestamp = theirs.Status.CompletionTimestamp
	ours.Status.FailureReason = "backup already exists in object storage"
	b := newBed(t, ours, newRequest("d"))
	b.fillBucket(theirs)
	before := b.store.Keys()
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())
	require.Equal(t, before, b.store.Keys())
}

func TestABackupThatNeverRanNeedsNoLocation(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{"", "New", "Queued", "ReadyToStart", "FailedValidation"} {
		k := newBackup(phase)
		k.Status.StartTimestamp = nil
		b := newBed(t, k, newRequest("d"))
		b.location = nil
		theirs := newBackup(velerov1.BackupPhaseCompleted)
		b.fillBucket(theirs)
		keys := b.store.Keys()
		require.Equal(t, Done, b.processRequest("d"), phase)
		require.Nil(t, b.readBackup(), phase)
		require.Equal(t, keys, b.store.Keys(), "nothing in the bucket is its own")
	}
}

func TestSyncedAndVeleroBackupsAreOwn(t *testing.T) {
	k := newBackup(velerov1.BackupPhaseCompleted)
	stored := newBackup(velerov1.BackupPhaseCompleted)
	stored.UID = "uid-in-the-other-cluster"
	b := newBed(t, k, newRequest("d"))
	b.fillBucket(stored)
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())

	b = newBed(t, newBackup(velerov1.BackupPhaseDeleting), newRequest("d"))
	b.store.Set(layout.BackupLog("b"), []byte("left by a deletion cut short"))
	require.Equal(t, Done, b.processRequest("d"))
	require.Empty(t, b.store.Keys())
}

func TestDamagedMetadata(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupMetadata("b"), []byte("{"))
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys(), "the owner file says whose it is")

	b = newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.reserveDirectory("their-uid")
	b.store.Set(layout.BackupMetadata("b"), []byte("{"))
	require.Equal(t, Done, b.processRequest("d"))
	require.Contains(t, b.readRequest("d").Status.Errors[0], "damaged")
	require.Len(t, b.store.Keys(), 2)
}

func TestOldestRequestGoesFirst(t *testing.T) {
	younger := newRequest("a-younger")
	younger.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("z-older"), younger)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	require.Equal(t, Later, b.processRequest("a-younger"))
	require.NotNil(t, b.readBackup())
	require.Equal(t, Done, b.processRequest("z-older"))
	require.Nil(t, b.readBackup())
	require.NotNil(t, b.readRequest("a-younger"), "not for this Backup's UID, as far as it says")
	require.Equal(t, Done, b.processRequest("a-younger"))
	require.Equal(t, []string{"backup not found"}, b.readRequest("a-younger").Status.Errors)
}

func TestAHeldClaimIsRespected(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.held = true
	require.Equal(t, Later, b.processRequest("d"))
	require.Equal(t, velerov1.BackupPhaseCompleted, b.readBackup().Status.Phase)
	require.Empty(t, b.readRequest("d").Status.Phase)
}

func TestALostClaimStopsTheWork(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			b.lose(claim.ErrLost)
		}
		return nil
	})
	require.Equal(t, Later, b.processRequest("d"))
	d := b.readRequest("d")
	require.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase, "the outcome is another's to record")
	require.NotNil(t, b.readBackup())
	require.Contains(t, b.store.Keys(), layout.BackupMetadata("b"))
}

func TestAStopHandsOver(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	ctx, stop := context.WithCancel(t.Context())
	b.stopped = ctx
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			stop()
		}
		return nil
	})
	outcome, err := b.r.Process(ctx, "d")
	require.Equal(t, Later, outcome)
	require.ErrorIs(t, err, context.Canceled)
	c, ok, err := claim.Parse(b.readRequest("d"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, c.Owner, "free for the next one at once")
	require.EqualValues(t, 1, c.Epoch)

	b.store.Inject(nil)
	b.stopped = nil
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())
	require.Nil(t, b.readBackup())
}

func TestACrashAfterTheLastStepIsSuccess(t *testing.T) {
	d := newRequest("d")
	d.Status.Phase = velerov1.DeleteBackupRequestPhaseInProgress
	b := newBed(t, d)
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readRequest("d"))
}

func TestProcessedRequestsStayADay(t *testing.T) {
	d := newRequest("d")
	d.Status.Phase = velerov1.DeleteBackupRequestPhaseProcessed
	b := newBed(t, d)
	b.clock.Step(processedLifetime - time.Second)
	require.Equal(t, Done, b.processRequest("d"))
	require.NotNil(t, b.readRequest("d"))
	b.clock.Step(time.Second)
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readRequest("d"))
}

func TestRestoresWithFinalizersAreWaitedFor(t *testing.T) {
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", Finalizers: []string{velerov1.RestoreFinalizer}}}
	restore.Spec.BackupName = "b"
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restore)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	done := make(chan Outcome, 1)
	go func() {
		outcome, err := b.r.Process(t.Context(), "d")
		if err != nil {
			outcome = ""
		}
		done <- outcome
	}()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	require.NotNil(t, b.readBackup(), "its location is needed until the restores are gone")
	var r velerov1.Restore
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r"}, &r))
	r.Finalizers = nil
	require.NoError(t, b.client.Update(t.Context(), &r))
	require.Eventually(t, func() bool { b.clock.Step(restorePoll); return len(done) == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, Done, <-done)
	require.Nil(t, b.readBackup())
}

func TestManyFailedObjectsAreSummedUp(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	for i := range 50 {
		b.store.Set(fmt.Sprintf("backups/b/parts/b-uid/%02d", i), nil)
	}
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpDelete {
			return fmt.Errorf("cannot delete %s", key)
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	message := b.readRequest("d").Status.Errors[0]
	require.Contains(t, message, "and 47 more objects")
	require.Less(t, len(message), 1000)
	require.Equal(t, maxNamed, strings.Count(message, "cannot delete"))
}

// Catches requests of the same backup that are left behind by a deletion that succeeded: each would
// end with "backup not found", and be kept for a day although nothing failed. A request for another
// backup of the name, by its UID, is kept.
func TestOtherRequestsGoWithTheBackup(t *testing.T) {
	labelled := func(name, uid string, phase velerov1.DeleteBackupRequestPhase) *velerov1.DeleteBackupRequest {
		d := newRequest(name)
		d.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
		d.Labels = map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: uid}
		d.Status.Phase = phase
		return d
	}
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"),
		labelled("new", "b-uid", ""), labelled("began", "b-uid", velerov1.DeleteBackupRequestPhaseInProgress),
		labelled("another", "another-uid", velerov1.DeleteBackupRequestPhaseInProgress))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())
	for name, stays := range map[string]bool{"d": false, "new": false, "began": false, "another": true} {
		require.Equal(t, stays, b.readRequest(name) != nil, name)
	}
}

// Catches an outcome of an earlier attempt that stays beside this one's.
func TestARequestReplacesTheFailuresBeforeIt(t *testing.T) {
	before := newRequest("before")
	before.Status.Phase, before.Status.Errors = velerov1.DeleteBackupRequestPhaseProcessed, []string{"the bucket was away"}
	b := newBed(t, newBackup(velerov1.BackupPhaseDeleting), newRequest("d"), before)
	b.fillBucket(newBackup(velerov1.BackupPhaseDeleting))
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			return errors.New("the bucket is away")
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Len(t, b.readRequest("d").Status.Errors, 1)
	require.Nil(t, b.readRequest("before"))
}

// atFirstDelete calls do before the first of the objects in the bucket is deleted; others are deleted at
// the same time, and wait for it.
func (b *bed) atFirstDelete(do func()) {
	var once sync.Once
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			once.Do(do)
		}
		return nil
	})
}

// Catches a deletion that frees a claim without comparing it: its process was paused until another
// took the request over, and a third one would begin beside that.
func TestAnInterruptedDeletionLeavesTheClaimOfAnother(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	others := claim.Claim{Owner: "other", Epoch: 2}
	ctx, stop := context.WithCancel(t.Context())
	b.stopped = ctx
	b.atFirstDelete(func() {
		d := b.readRequest("d")
		assert.NoError(t, claim.Set(d, others))
		assert.NoError(t, b.client.Update(t.Context(), d))
		stop()
	})
	outcome, err := b.r.Process(ctx, "d")
	require.Equal(t, Later, outcome)
	require.ErrorIs(t, err, context.Canceled)
	held, _, err := claim.Parse(b.readRequest("d"))
	require.NoError(t, err)
	require.Equal(t, others, held)
}

// Catches the same where the request was deleted meanwhile and another of its name is carried out:
// only the UID distinguishes the two.
func TestAnInterruptedDeletionLeavesTheClaimOfAnotherRequest(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	ctx, stop := context.WithCancel(t.Context())
	b.stopped = ctx
	mine := claim.Claim{Owner: "me", Epoch: 1}
	b.atFirstDelete(func() {
		assert.NoError(t, b.client.Delete(t.Context(), b.readRequest("d")))
		next := newRequest("d")
		next.UID = "another"
		assert.NoError(t, claim.Set(next, mine))
		assert.NoError(t, b.client.Create(t.Context(), next))
		stop()
	})
	_, err := b.r.Process(ctx, "d")
	require.ErrorIs(t, err, context.Canceled)
	held, _, err := claim.Parse(b.readRequest("d"))
	require.NoError(t, err)
	require.Equal(t, mine, held)
}
