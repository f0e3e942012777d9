package cancellation_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
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
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/cancellation"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/metrics"
)

const (
	namespace = "velero"
	deadline  = time.Minute
)

// bed is an API server and a clock that replicas share.
type bed struct {
	client client.WithWatch
	clock  *clocktesting.FakeClock

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

func newBed(objects ...client.Object) *bed {
	return &bed{
		client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(),
		clock:  clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
	}
}

func (b *bed) newReplica(t *testing.T) *cancellation.Canceller {
	t.Helper()
	counters, err := cancellation.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	counts, err := metrics.New(registry, count.NewSchedules(registry, b.client, namespace))
	require.NoError(t, err)
	b.counts = append(b.counts, registry)
	return cancellation.New(cancellation.Config{
		Reader: b.client, Client: b.client, Namespace: namespace, Deadline: deadline, DefaultTTL: time.Hour, Events: b, Recorder: b, Metrics: counters, Counts: counts, Clock: b.clock, Log: slog.New(slog.DiscardHandler),
	})
}

// counterSum is the sum of a counter over all replicas.
func (b *bed) counterSum(t *testing.T, name string) (sum float64) {
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

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func newBackup(name string, phase velerov1.BackupPhase, annotations ...string) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		b.Annotations[annotations[i]] = annotations[i+1]
	}
	b.Status.Phase = phase
	return b
}

// runningBackup is claimed at epoch 3 by a runner.
func runningBackup(name string, annotations ...string) *velerov1.Backup {
	b := newBackup(name, velerov1.BackupPhaseInProgress, annotations...)
	if err := claim.Set(b, claim.Claim{Owner: "runner", Epoch: 3}); err != nil {
		panic(err)
	}
	return b
}

func newRestore(name string, phase velerov1.RestorePhase) *velerov1.Restore {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	r.Status.Phase = phase
	return r
}

func readObject[T client.Object](t *testing.T, b *bed, o T) T {
	t.Helper()
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

func claimOf(t *testing.T, o client.Object) claim.Claim {
	t.Helper()
	c, _, err := claim.Parse(o)
	require.NoError(t, err)
	return c
}

func TestAJobNobodyWorksOnEndsAtOnce(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart} {
		o := newBackup("b", phase)
		o.Status.QueuePosition = 4
		expires := time.Unix(1_700_000_000, 0).Add(time.Hour)
		switch phase {
		case velerov1.BackupPhaseQueued:
			o.Spec.TTL.Duration, expires = 2*time.Hour, expires.Add(time.Hour)
		case velerov1.BackupPhaseReadyToStart: // it was computed at admission
			expires = expires.Add(-time.Minute)
			o.Status.Expiration = &metav1.Time{Time: expires}
		}
		b := newBed(o, newRestore("r", ""))
		c := b.newReplica(t)
		got, err := c.AskBackup(t.Context(), "b", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
		stored := readObject(t, b, o)
		require.Equal(t, velerov1.BackupPhaseFailed, stored.Status.Phase, phase)
		require.Equal(t, "cancelled by alice", stored.Status.FailureReason)
		require.Zero(t, stored.Status.QueuePosition)
		require.True(t, stored.Status.CompletionTimestamp.Time.Equal(b.clock.Now()))
		require.True(t, stored.Status.Expiration.Time.Equal(expires), "without one it is never deleted")

		_, err = c.AskBackup(t.Context(), "b", "bob")
		require.NoError(t, err, "twice is fine")
		require.Equal(t, "cancelled by alice", readObject(t, b, o).Status.FailureReason)
		r, err := c.AskRestore(t.Context(), "r", "")
		require.NoError(t, err)
		require.Equal(t, "cancelled", r.Status.FailureReason)
		require.Equal(t, []string{"b Failed", "r Failed"}, b.phases)
		require.Equal(t, []string{"b Failed", "r Failed"}, b.events)
		require.InDelta(t, 1, b.counterSum(t, "velero_backup_failure_total"), 0)
		require.InDelta(t, 1, b.counterSum(t, "velero_restore_failed_total"), 0)
	}
}

func TestARunningJobIsLeftToItsHolder(t *testing.T) {
	o := runningBackup("b")
	b := newBed(o)
	c := b.newReplica(t)
	for range 2 {
		got, err := c.AskBackup(t.Context(), "b", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase)
	}
	asked, ok := mark.CancelRequested(readObject(t, b, o))
	require.True(t, ok)
	require.Equal(t, "alice", asked.By)
	result, err := c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	require.Empty(t, b.phases)
}

func TestItMayBeTooLate(t *testing.T) {
	committing := runningBackup("committing")
	require.NoError(t, mark.SetCommitting(committing, 3))
	b := newBed(committing, newBackup("done", velerov1.BackupPhaseCompleted), newBackup("own", velerov1.BackupPhaseFailed),
		newRestore("restored", velerov1.RestorePhasePartiallyFailed))
	c := b.newReplica(t)
	for name, reason := range map[string]string{
		"committing": cancellation.ReasonCommitting, "done": cancellation.ReasonEnded, "own": cancellation.ReasonEnded,
	} {
		before := readObject(t, b, newBackup(name, "")).ResourceVersion
		_, err := c.AskBackup(t.Context(), name, "alice")
		status, _ := errgrpc.Status(err)
		require.Equal(t, codes.FailedPrecondition, status.Code(), name)
		var own *errgrpc.ReasonError
		require.ErrorAs(t, err, &own)
		require.Equal(t, reason, own.Reason, name)
		require.Equal(t, before, readObject(t, b, newBackup(name, "")).ResourceVersion)
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
		marked := newBackup("marked", phase, holdfast.AnnotationCommitting, "3 uid-other")
		asked := newBackup("asked", phase, holdfast.AnnotationCancel, `{"by":"bob","uid":"uid-other"}`)
		b := newBed(marked, asked)
		c := b.newReplica(t)
		got, err := c.AskBackup(t.Context(), "marked", "alice")
		require.NoError(t, err)
		require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
		require.Equal(t, "cancelled by alice", readObject(t, b, marked).Status.FailureReason)
		_, err = c.ReconcileBackup(t.Context(), requestFor("asked"))
		require.NoError(t, err)
		require.Equal(t, phase, readObject(t, b, asked).Status.Phase)
		_, err = c.AskBackup(t.Context(), "asked", "alice")
		require.NoError(t, err)
		require.Equal(t, "cancelled by alice", readObject(t, b, asked).Status.FailureReason)
	}
}

// What kubectl or the CLI wrote on the object counts like the call.
func TestRequestsOnObjectsAreFound(t *testing.T) {
	o := newBackup("b", velerov1.BackupPhaseQueued, holdfast.AnnotationCancel, "bob")
	r := newRestore("r", "")
	r.Annotations = map[string]string{holdfast.AnnotationCancel: "true"}
	quiet := newBackup("quiet", velerov1.BackupPhaseQueued)
	b := newBed(o, r, quiet)
	c := b.newReplica(t)
	for _, name := range []string{"b", "quiet", "absent"} {
		_, err := c.ReconcileBackup(t.Context(), requestFor(name))
		require.NoError(t, err)
	}
	_, err := c.ReconcileRestore(t.Context(), requestFor("r"))
	require.NoError(t, err)
	require.Equal(t, "cancelled by bob", readObject(t, b, o).Status.FailureReason)
	require.Equal(t, velerov1.RestorePhaseFailed, readObject(t, b, r).Status.Phase)
	require.Equal(t, velerov1.BackupPhaseQueued, readObject(t, b, quiet).Status.Phase)
}

// A runner claims the backup between the read of it and the write.
func TestAClaimMayComeFirst(t *testing.T) {
	o := newBackup("b", velerov1.BackupPhaseReadyToStart, holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	base, claimed := b.client, false
	b.client = interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if !claimed {
				claimed = true
				taken := runningBackup("b", holdfast.AnnotationCancel, "bob")
				taken.ResourceVersion = readObject(t, &bed{client: base}, newBackup("b", "")).ResourceVersion
				require.NoError(t, base.Update(ctx, taken))
			}
			return w.Patch(ctx, obj, patch, opts...)
		},
	})
	_, err := b.newReplica(t).ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.True(t, claimed)
	require.Equal(t, velerov1.BackupPhaseInProgress, readObject(t, b, o).Status.Phase, "its holder stops it")
	require.Empty(t, b.phases)
}

// passDeadline requests to cancel, and lets the deadline pass.
func passDeadline(t *testing.T, b *bed, c *cancellation.Canceller, name string) reconcile.Result {
	t.Helper()
	result, err := c.ReconcileBackup(t.Context(), requestFor(name))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	b.clock.Step(deadline)
	result, err = c.ReconcileBackup(t.Context(), requestFor(name))
	require.NoError(t, err)
	return result
}

// The claim gets an epoch without a holder, which fences the one that hangs and leaves the job to any
// runner.
func TestTheClaimOfAnOverdueJobIsTaken(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	r := newRestore("r", velerov1.RestorePhaseInProgress)
	r.Annotations = map[string]string{holdfast.AnnotationCancel: "bob"}
	require.NoError(t, claim.Set(r, claim.Claim{Owner: "runner", Epoch: 1, Panics: 1}))
	b := newBed(o, r)
	c := b.newReplica(t)
	_, err := c.ReconcileRestore(t.Context(), requestFor("r"))
	require.NoError(t, err)
	require.Equal(t, deadline, passDeadline(t, b, c, "b").RequeueAfter)
	_, err = c.ReconcileRestore(t.Context(), requestFor("r"))
	require.NoError(t, err)
	require.Equal(t, claim.Claim{Epoch: 4}, claimOf(t, readObject(t, b, o)))
	require.Equal(t, claim.Claim{Epoch: 2, Panics: 1}, claimOf(t, readObject(t, b, r)))
	require.Equal(t, velerov1.BackupPhaseInProgress, readObject(t, b, o).Status.Phase)
	require.Equal(t, velerov1.RestorePhaseInProgress, readObject(t, b, r).Status.Phase)
	require.Empty(t, b.events)
	require.InDelta(t, 0, b.counterSum(t, "velero_backup_failure_total"), 0, "its runner counts it")
}

// The next holder has twice the time to end the job, and the one after it four times.
func TestLaterHoldersHaveMoreTime(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	c := b.newReplica(t)
	passDeadline(t, b, c, "b")
	for _, wait := range []time.Duration{2 * deadline, 4 * deadline} {
		next := readObject(t, b, o)
		held := claim.Claim{Owner: "next", Epoch: claimOf(t, next).Epoch + 1}
		require.NoError(t, claim.Set(next, held))
		require.NoError(t, b.client.Update(t.Context(), next))
		result, err := c.ReconcileBackup(t.Context(), requestFor("b"))
		require.NoError(t, err)
		require.Equal(t, wait, result.RequeueAfter)
		b.clock.Step(result.RequeueAfter)
		_, err = c.ReconcileBackup(t.Context(), requestFor("b"))
		require.NoError(t, err)
		require.Equal(t, claim.Claim{Epoch: held.Epoch + 1}, claimOf(t, readObject(t, b, o)))
	}
}

func TestAJobThatNoRunnerTakesSaysSo(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	c := b.newReplica(t)
	passDeadline(t, b, c, "b")
	passDeadline(t, b, c, "b")
	require.Equal(t, []string{"b WaitingForRunner"}, b.events)
	require.Equal(t, claim.Claim{Epoch: 4}, claimOf(t, readObject(t, b, o)), "it is not taken again")
}

// A holder that commits in the last moment is ahead.
func TestACommitThatBeganIsNotInterrupted(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	c := b.newReplica(t)
	_, err := c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	marked := readObject(t, b, o)
	delete(marked.Annotations, holdfast.AnnotationCancel)
	require.NoError(t, mark.SetCommitting(marked, 3))
	require.NoError(t, mark.WriteCancelRequest(marked, mark.CancelRequest{By: "bob"}))
	require.NoError(t, b.client.Update(t.Context(), marked))
	b.clock.Step(deadline)
	_, err = c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.Equal(t, "runner", claimOf(t, readObject(t, b, o)).Owner)
}

// Of replicas that see the same deadline pass one takes the claim.
func TestOneReplicaTakesTheClaim(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	b := newBed(o)
	one, two := b.newReplica(t), b.newReplica(t)
	_, err := two.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	passDeadline(t, b, one, "b")
	result, err := two.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	require.Equal(t, claim.Claim{Epoch: 4}, claimOf(t, readObject(t, b, o)))
}

// A request that is withdrawn leaves the job to its holder, also between the read of the job and the
// write.
func TestAWithdrawnRequest(t *testing.T) {
	for name, reads := range map[string]int{"before the deadline": 1, "as the claim is taken": 2} {
		t.Run(name, func(t *testing.T) {
			o := runningBackup("b", holdfast.AnnotationCancel, "bob")
			b := newBed(o)
			base, left := b.client, -1
			b.client = interceptor.NewClient(base, interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if left--; left == 0 {
						withdrawn := readObject(t, &bed{client: base}, runningBackup("b"))
						withdrawn.Annotations[holdfast.AnnotationCancel] = "false"
						require.NoError(t, base.Update(ctx, withdrawn))
					}
					return w.Get(ctx, key, obj, opts...)
				},
			})
			c := b.newReplica(t)
			_, err := c.ReconcileBackup(t.Context(), requestFor("b"))
			require.NoError(t, err)
			b.clock.Step(deadline)
			left = reads
			_, err = c.ReconcileBackup(t.Context(), requestFor("b"))
			require.NoError(t, err)
			require.Equal(t, claim.Claim{Owner: "runner", Epoch: 3}, claimOf(t, readObject(t, &bed{client: base}, o)))
		})
	}
}
