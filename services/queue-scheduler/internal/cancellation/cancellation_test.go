package cancellation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/paused"
	"github.com/holdfast-io/holdfast/pkg/job/posthooks"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/cancellation"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/metrics"
)

const (
	namespace    = "velero"
	deadline     = time.Minute
	claimTimeout = 30 * time.Second
	again        = 5 * time.Second // the pause after an attempt that failed
)

// bed is an API server, a bucket and a clock that replicas share.
type bed struct {
	client client.WithWatch
	store  *memstore.Store
	clock  *clocktesting.FakeClock
	away   error // of the bucket

	mu     sync.Mutex
	phases []string               // announced
	events []string               // recorded on objects
	counts []*prometheus.Registry // one for each replica
}

func (b *bed) Eventf(regarding, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o, ok := regarding.(client.Object); ok {
		b.events = append(b.events, o.GetName()+" "+reason)
	}
}

func (b *bed) PublishEvent(_ context.Context, e *eventv1.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phases = append(b.phases, e.GetName()+" "+e.GetPhase())
	return nil
}

func (b *bed) OpenName(context.Context, string) (objectstore.Store, error) {
	return kept{b.store}, b.away
}

// kept stays open.
type kept struct{ objectstore.Store }

func (kept) Close() error { return nil }

func newBed(objects ...client.Object) *bed {
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-1"}})
	return &bed{
		client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(),
		store:  memstore.New(), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
	}
}

func (b *bed) replica(t *testing.T, name string) *cancellation.Canceller {
	t.Helper()
	counters, err := cancellation.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry, count.NewSchedules(registry, b.client, namespace))
	require.NoError(t, err)
	b.counts = append(b.counts, registry)
	return cancellation.New(cancellation.Config{
		Reader: b.client, Client: b.client, Namespace: namespace, Instance: name, Deadline: deadline, ClaimTimeout: claimTimeout,
		Locations: b, WorkDir: t.TempDir(), Events: b, Recorder: b, Metrics: counters, Counts: counts, Clock: b.clock, Log: slog.New(slog.DiscardHandler),
	})
}

// counted is the sum of a counter over all replicas.
func (b *bed) counted(t *testing.T, name string) (sum float64) {
	t.Helper()
	for _, registry := range b.counts {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func backup(name string, phase velerov1.BackupPhase, annotations ...string) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		b.Annotations[annotations[i]] = annotations[i+1]
	}
	b.Status.Phase = phase
	return b
}

// running is claimed at epoch 3 by a runner.
func running(name string, annotations ...string) *velerov1.Backup {
	b := backup(name, velerov1.BackupPhaseInProgress, annotations...)
	if err := claim.Set(b, claim.Claim{Holder: "runner", Epoch: 3}); err != nil {
		panic(err)
	}
	return b
}

func restore(name string, phase velerov1.RestorePhase) *velerov1.Restore {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	r.Status.Phase = phase
	return r
}

func read[T client.Object](t *testing.T, b *bed, o T) T {
	t.Helper()
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

func TestAJobNobodyWorksOnEndsAtOnce(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart} {
		o := backup("b", phase)
		o.Status.QueuePosition = 4
		b := newBed(o, restore("r", ""))
		c := b.replica(t, "one")
		got, err := c.AskBackup(t.Context(), "b", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
		stored := read(t, b, o)
		require.Equal(t, velerov1.BackupPhaseFailed, stored.Status.Phase, phase)
		require.Equal(t, "cancelled by alice", stored.Status.FailureReason)
		require.Zero(t, stored.Status.QueuePosition)
		require.True(t, stored.Status.CompletionTimestamp.Time.Equal(b.clock.Now()))
		require.Empty(t, b.store.Keys())

		_, err = c.AskBackup(t.Context(), "b", "bob")
		require.NoError(t, err, "twice is fine")
		require.Equal(t, "cancelled by alice", read(t, b, o).Status.FailureReason)
		r, err := c.AskRestore(t.Context(), "r", "")
		require.NoError(t, err)
		require.Equal(t, "cancelled", r.Status.FailureReason)
		require.Equal(t, []string{"b Failed", "r Failed"}, b.phases)
		require.Equal(t, []string{"b Failed", "r Failed"}, b.events)
		require.InDelta(t, 1, b.counted(t, "velero_backup_failure_total"), 0)
		require.InDelta(t, 1, b.counted(t, "velero_restore_failed_total"), 0)
	}
}

func TestARunningJobIsLeftToItsHolder(t *testing.T) {
	o := running("b")
	b := newBed(o)
	c := b.replica(t, "one")
	for range 2 {
		got, err := c.AskBackup(t.Context(), "b", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase)
	}
	asked, ok := cancel.Requested(read(t, b, o))
	require.True(t, ok)
	require.Equal(t, "alice", asked.By)
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	require.Empty(t, b.phases)
}

func TestItMayBeTooLate(t *testing.T) {
	committing := running("committing")
	require.NoError(t, cancel.Mark(committing, 3))
	b := newBed(committing, backup("done", velerov1.BackupPhaseCompleted), backup("own", velerov1.BackupPhaseFailed),
		restore("restored", velerov1.RestorePhasePartiallyFailed))
	c := b.replica(t, "one")
	for name, reason := range map[string]string{
		"committing": cancellation.ReasonCommitting, "done": cancellation.ReasonEnded, "own": cancellation.ReasonEnded,
	} {
		before := read(t, b, backup(name, "")).ResourceVersion
		_, err := c.AskBackup(t.Context(), name, "alice")
		status, _ := errgrpc.Status(err)
		require.Equal(t, codes.FailedPrecondition, status.Code(), name)
		var own *errgrpc.ReasonError
		require.ErrorAs(t, err, &own)
		require.Equal(t, reason, own.Reason, name)
		require.Equal(t, before, read(t, b, backup(name, "")).ResourceVersion)
	}
	_, err := c.AskRestore(t.Context(), "restored", "")
	require.ErrorIs(t, err, errgrpc.ErrPrecondition)
	_, err = c.AskBackup(t.Context(), "absent", "alice")
	status, _ := errgrpc.Status(err)
	require.Equal(t, codes.NotFound, status.Code())
}

// Annotations come along when an object is copied.
func TestAnnotationsOfAnotherObjectDoNotCount(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart} {
		marked := backup("marked", phase, holdfast.AnnotationCommitting, "3 uid-other")
		asked := backup("asked", phase, holdfast.AnnotationCancel, `{"by":"bob","uid":"uid-other"}`)
		b := newBed(marked, asked)
		c := b.replica(t, "one")
		got, err := c.AskBackup(t.Context(), "marked", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
		require.Equal(t, "cancelled by alice", read(t, b, marked).Status.FailureReason)
		_, err = c.ReconcileBackup(t.Context(), request("asked"))
		require.NoError(t, err)
		require.Equal(t, phase, read(t, b, asked).Status.Phase)
		_, err = c.AskBackup(t.Context(), "asked", "alice")
		require.NoError(t, err)
		require.Equal(t, "cancelled by alice", read(t, b, asked).Status.FailureReason)
	}
}

// What kubectl or the CLI wrote on the object counts like the call.
func TestRequestsOnObjectsAreFound(t *testing.T) {
	o := backup("b", velerov1.BackupPhaseQueued, holdfast.AnnotationCancel, "bob")
	r := restore("r", "")
	r.Annotations = map[string]string{holdfast.AnnotationCancel: "true"}
	quiet := backup("quiet", velerov1.BackupPhaseQueued)
	b := newBed(o, r, quiet)
	c := b.replica(t, "one")
	for _, name := range []string{"b", "quiet", "absent"} {
		_, err := c.ReconcileBackup(t.Context(), request(name))
		require.NoError(t, err)
	}
	_, err := c.ReconcileRestore(t.Context(), request("r"))
	require.NoError(t, err)
	require.Equal(t, "cancelled by bob", read(t, b, o).Status.FailureReason)
	require.Equal(t, velerov1.RestorePhaseFailed, read(t, b, r).Status.Phase)
	require.Equal(t, velerov1.BackupPhaseQueued, read(t, b, quiet).Status.Phase)
}

// A runner claims the backup between the read of it and the write.
func TestAClaimMayComeFirst(t *testing.T) {
	o := backup("b", velerov1.BackupPhaseReadyToStart, holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	base, claimed := b.client, false
	b.client = interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if !claimed {
				claimed = true
				taken := running("b", holdfast.AnnotationCancel, "bob")
				taken.ResourceVersion = read(t, &bed{client: base}, backup("b", "")).ResourceVersion
				require.NoError(t, base.Update(ctx, taken))
			}
			return w.Patch(ctx, obj, patch, opts...)
		},
	})
	_, err := b.replica(t, "one").ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.True(t, claimed)
	require.Equal(t, velerov1.BackupPhaseInProgress, read(t, b, o).Status.Phase, "its holder stops it")
	require.Empty(t, b.phases)
}

// overdue requests to cancel, and lets the deadline pass.
func overdue(t *testing.T, b *bed, c *cancellation.Canceller, name string) reconcile.Result {
	t.Helper()
	result, err := c.ReconcileBackup(t.Context(), request(name))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	b.clock.Step(deadline)
	result, err = c.ReconcileBackup(t.Context(), request(name))
	require.NoError(t, err)
	return result
}

func TestABackupThatIsNotStoppedInTimeIsEndedHere(t *testing.T) {
	for name, reserved := range map[string]bool{"before the runner reserved the name": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			o := running("b", holdfast.AnnotationCancel, "bob")
			b := newBed(o)
			if reserved {
				data, err := layout.Owner{BackupUID: "uid-b", ClusterUID: "cluster-1"}.Encode()
				require.NoError(t, err)
				b.store.Set(layout.OwnerFile("b"), data)
			}
			require.Zero(t, overdue(t, b, b.replica(t, "one"), "b"))
			got := read(t, b, o)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Equal(t, "cancelled by bob", got.Status.FailureReason)
			held, _, err := claim.Parse(got)
			require.NoError(t, err)
			require.Equal(t, claim.Claim{Holder: "one-uid-b-4", Epoch: 4}, held)
			committed, found, err := commit.Committed(t.Context(), b.store, got)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, got.Status, committed.Status)
			require.Equal(t, []string{layout.BackupLog("b"), layout.BackupResults("b"), layout.OwnerFile("b"), layout.BackupMetadata("b")}, b.store.Keys())
			require.Equal(t, []string{"b Failed"}, b.phases)
			require.Equal(t, []string{"b Failed"}, b.events)
			require.True(t, posthooks.Of(got).Owed, "a runner runs the post hooks that its last one left")
		})
	}
}

// The phase in the bucket counts, whichever process wrote it: a runner that stopped the backup may
// have died before it updated the object. A runner that watched the holder of one claim must not
// take that of the next for dead.
func TestEachTakenClaimHasAHolderOfItsOwn(t *testing.T) {
	b := newBed(running("one"), running("two"))
	c := b.replica(t, "scheduler")
	holders := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		_, err := c.AskBackup(t.Context(), name, "alice")
		require.NoError(t, err)
		_, err = c.ReconcileBackup(t.Context(), request(name))
		require.NoError(t, err)
		b.clock.Step(deadline)
		_, err = c.ReconcileBackup(t.Context(), request(name))
		require.NoError(t, err)
		ended := read(t, b, backup(name, ""))
		require.Equal(t, velerov1.BackupPhaseFailed, ended.Status.Phase)
		held, _, err := claim.Parse(ended)
		require.NoError(t, err)
		holders[held.Holder] = true
	}
	require.Len(t, holders, 2)
}

func TestWhatWasCommittedBeforeStands(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	before := commit.Failed(o, "disk on fire", time.Unix(1, 0))
	_, _, err := commit.Commit(t.Context(), b.store, before)
	require.NoError(t, err)
	overdue(t, b, b.replica(t, "one"), "b")
	require.Equal(t, "disk on fire", read(t, b, o).Status.FailureReason)
	require.Equal(t, []string{layout.BackupMetadata("b")}, b.store.Keys())
}

func TestADirectoryOfAnotherIsNotTouched(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	data, err := layout.Owner{BackupUID: "other", ClusterUID: "cluster-2"}.Encode()
	require.NoError(t, err)
	b.store.Set(layout.OwnerFile("b"), data)
	overdue(t, b, b.replica(t, "one"), "b")
	require.Equal(t, "cancelled by bob", read(t, b, o).Status.FailureReason)
	require.Equal(t, []string{layout.OwnerFile("b")}, b.store.Keys())
}

// A bucket that is away is waited for, with the claim, until a second deadline.
func TestABucketThatIsAwayIsWaitedFor(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	b.away = errors.New("connection refused")
	c := b.replica(t, "one")
	_, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	b.clock.Step(deadline)
	for range 3 {
		result, err := c.ReconcileBackup(t.Context(), request("b"))
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, result.RequeueAfter)
		require.Equal(t, velerov1.BackupPhaseInProgress, read(t, b, o).Status.Phase)
	}
	held, _, err := claim.Parse(read(t, b, o))
	require.NoError(t, err)
	require.EqualValues(t, 4, held.Epoch, "taken once")
	b.away = nil
	_, err = c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseFailed, read(t, b, o).Status.Phase)
	require.Equal(t, "cancelled by bob", read(t, b, o).Status.FailureReason)
	require.Contains(t, b.store.Keys(), layout.BackupMetadata("b"))
}

func TestABucketThatStaysAwayDoesNotHoldTheQueue(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	b.away = objectstore.ErrReadOnly
	c := b.replica(t, "one")
	require.Equal(t, 5*time.Second, overdue(t, b, c, "b").RequeueAfter)
	b.clock.Step(deadline - time.Second)
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, result.RequeueAfter)
	b.clock.Step(time.Second)
	result, err = c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Zero(t, result)
	got := read(t, b, o)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by bob; the bucket could not be written: object store is read-only", got.Status.FailureReason)
	require.NotNil(t, got.Status.CompletionTimestamp)
	require.Equal(t, []string{"b Failed"}, b.phases)
	_, err = c.AskBackup(t.Context(), "b", "alice")
	require.NoError(t, err, "it is known as cancelled")
}

func TestABucketThatRefusesIsNotWaitedFor(t *testing.T) {
	for _, refusal := range []error{objectstore.ErrNoBucket, objectstore.ErrAccess} {
		o := running("b", holdfast.AnnotationCancel, "true")
		b := newBed(o)
		b.away = fmt.Errorf("open: %w", refusal)
		require.Zero(t, overdue(t, b, b.replica(t, "one"), "b"))
		got := read(t, b, o)
		require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
		require.Equal(t, "cancelled; the bucket could not be written: open: "+refusal.Error(), got.Status.FailureReason)
	}
}

// Runners that take the backup repeatedly do not begin the wait anew.
func TestChangingHoldersDoNotProlongTheWait(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	b.away = errors.New("connection refused")
	c := b.replica(t, "one")
	for epoch := int64(4); epoch < 8; epoch++ {
		result, err := c.ReconcileBackup(t.Context(), request("b"))
		require.NoError(t, err)
		require.Positive(t, result.RequeueAfter)
		require.Equal(t, velerov1.BackupPhaseInProgress, read(t, b, o).Status.Phase)
		next := read(t, b, o)
		require.NoError(t, claim.Set(next, claim.Claim{Holder: "next", Epoch: epoch}))
		require.NoError(t, b.client.Update(t.Context(), next))
		b.clock.Step(deadline / 2)
	}
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, again, result.RequeueAfter)
	b.clock.Step(again)
	result, err = c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Zero(t, result)
	require.Equal(t, velerov1.BackupPhaseFailed, read(t, b, o).Status.Phase)
}

// After holders that changed the first attempt was the last one: one connection that broke ended the
// backup without its bucket.
func TestABucketIsTriedOnceMoreAfterHoldersThatChanged(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	c := b.replica(t, "one")
	for epoch := int64(4); epoch < 6; epoch++ {
		_, err := c.ReconcileBackup(t.Context(), request("b"))
		require.NoError(t, err)
		next := read(t, b, o)
		require.NoError(t, claim.Set(next, claim.Claim{Holder: "next", Epoch: epoch}))
		require.NoError(t, b.client.Update(t.Context(), next))
		b.clock.Step(deadline)
	}
	b.away = errors.New("connection reset")
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, again, result.RequeueAfter)
	b.away = nil
	taken := read(t, b, o)
	require.NoError(t, claim.Set(taken, claim.Claim{Holder: "next", Epoch: 7}), "another one takes it during the attempt")
	require.NoError(t, b.client.Update(t.Context(), taken))
	b.clock.Step(again)
	result, err = c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Zero(t, result)
	require.Equal(t, "cancelled by bob", read(t, b, o).Status.FailureReason)
	require.Contains(t, b.store.Keys(), layout.BackupMetadata("b"))
}

// A holder that commits in the last moment is ahead, and one that handed over, or was succeeded,
// leaves its successor a deadline, up to two in all.
func TestTheHolderMayStillBeAhead(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	c := b.replica(t, "one")
	_, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	b.clock.Step(deadline - time.Second)
	succeeded := read(t, b, o)
	require.NoError(t, claim.Set(succeeded, claim.Claim{Holder: "next", Epoch: 4}))
	require.NoError(t, b.client.Update(t.Context(), succeeded))
	b.clock.Step(2 * time.Second)
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, deadline-time.Second, result.RequeueAfter, "two deadlines in all")

	marked := read(t, b, o)
	delete(marked.Annotations, holdfast.AnnotationCancel)
	require.NoError(t, cancel.Mark(marked, 4))
	require.NoError(t, cancel.Ask(marked, cancel.Request{By: "bob"}))
	require.NoError(t, b.client.Update(t.Context(), marked))
	b.clock.Step(deadline)
	result, err = c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Zero(t, result)
	require.Equal(t, velerov1.BackupPhaseInProgress, read(t, b, o).Status.Phase)
	require.Empty(t, b.store.Keys())
}

// Replicas that see the same deadline pass: one takes the claim. Should it die right then, another
// has it a deadline later.
func TestOneReplicaTakesTheClaim(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	b.away = errors.New("connection refused")
	one, two := b.replica(t, "one"), b.replica(t, "two")
	for _, c := range []*cancellation.Canceller{one, two} {
		_, err := c.ReconcileBackup(t.Context(), request("b"))
		require.NoError(t, err)
	}
	b.clock.Step(deadline)
	result, err := one.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, result.RequeueAfter)
	b.away = nil
	result, err = two.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	b.clock.Step(deadline)
	_, err = two.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseFailed, read(t, b, o).Status.Phase)
	_, err = one.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Equal(t, []string{"b Failed"}, b.phases, "told once")
}

// A restore is left to the runners for as long as its former holder could create anything, and long
// enough for a running one to take it; then it ends without files.
func TestARestoreThatIsNotStoppedInTime(t *testing.T) {
	o := restore("r", velerov1.RestorePhaseInProgress)
	o.Annotations = map[string]string{holdfast.AnnotationCancel: "bob"}
	require.NoError(t, claim.Set(o, claim.Claim{Holder: "runner", Epoch: 1}))
	b := newBed(o)
	c := b.replica(t, "one")
	look := func() reconcile.Result {
		result, err := c.ReconcileRestore(t.Context(), request("r"))
		require.NoError(t, err)
		return result
	}
	require.Equal(t, deadline, look().RequeueAfter)
	b.clock.Step(deadline)
	left := look().RequeueAfter
	require.Equal(t, 3*claimTimeout, left)
	held, _, err := claim.Parse(read(t, b, o))
	require.NoError(t, err)
	require.Equal(t, claim.Claim{Holder: "one-uid-r-2", Epoch: 2}, held)
	b.clock.Step(claimTimeout)
	require.Equal(t, 2*claimTimeout, look().RequeueAfter)
	require.Equal(t, velerov1.RestorePhaseInProgress, read(t, b, o).Status.Phase)
	b.clock.Step(2 * claimTimeout)
	require.Zero(t, look())
	got := read(t, b, o)
	require.Equal(t, velerov1.RestorePhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by bob", got.Status.FailureReason)
}

// Without a runner nothing is resumed: the failure reason reports that.
func TestARestoreThatIsEndedWithoutARunnerMayLeaveObjectsPaused(t *testing.T) {
	o := restore("r", velerov1.RestorePhaseInProgress)
	o.Annotations = map[string]string{holdfast.AnnotationCancel: "bob"}
	require.NoError(t, paused.Set(o, "default"))
	require.NoError(t, claim.Set(o, claim.Claim{Holder: "runner", Epoch: 1}))
	b := newBed(o)
	c := b.replica(t, "one")
	for _, passed := range []time.Duration{0, deadline, 3 * claimTimeout} {
		b.clock.Step(passed)
		_, err := c.ReconcileRestore(t.Context(), request("r"))
		require.NoError(t, err)
	}
	got := read(t, b, o)
	require.Equal(t, velerov1.RestorePhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by bob; "+paused.Remark, got.Status.FailureReason)
	require.Equal(t, "default", paused.Of(got), "whoever resumes them finds their records")
}

// A request that is withdrawn leaves the restore to a runner.
func TestAWithdrawnRequest(t *testing.T) {
	o := restore("r", velerov1.RestorePhaseInProgress)
	o.Annotations = map[string]string{holdfast.AnnotationCancel: "bob"}
	require.NoError(t, claim.Set(o, claim.Claim{Holder: "runner", Epoch: 1}))
	b := newBed(o)
	c := b.replica(t, "one")
	_, err := c.ReconcileRestore(t.Context(), request("r"))
	require.NoError(t, err)
	got := read(t, b, o)
	got.Annotations[holdfast.AnnotationCancel] = "false"
	require.NoError(t, b.client.Update(t.Context(), got))
	b.clock.Step(deadline)
	_, err = c.ReconcileRestore(t.Context(), request("r"))
	require.NoError(t, err)
	held, _, err := claim.Parse(read(t, b, o))
	require.NoError(t, err)
	require.Equal(t, "runner", held.Holder)
}
