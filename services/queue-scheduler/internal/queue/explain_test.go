package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// blind cannot read the namespaces of the cluster.
type blind struct{ *rules }

func (blind) Namespaces(context.Context) (live, excluded []string, err error) {
	return nil, nil, errDown
}

func (b *bed) setAnnotation(name, key, value string) {
	b.t.Helper()
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, b.getBackup(name), func(o *velerov1.Backup) error {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value)
		return nil
	}))
}

// explainInLine explains in one line: reason, jobs and namespaces of every obstacle.
func explainInLine(t *testing.T, s *queue.Scheduler, name string) string {
	t.Helper()
	x, err := s.Explain(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, name, x.Job.Object.GetName())
	names := map[queue.Reason]string{queue.OverlapRunning: "running", queue.RestoreAhead: "restore", queue.OverlapAhead: "ahead", queue.NoPlace: "full"}
	var out []string
	for _, o := range x.Obstacles {
		require.False(t, o.Since.Before(x.Job.Object.GetCreationTimestamp().Time), "nothing was in its way before it existed")
		jobs := make([]string, len(o.Jobs))
		for i, j := range o.Jobs {
			jobs[i] = j.Name
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", names[o.Reason], strings.Join(jobs, "+"), strings.Join(o.Namespaces, ","))))
	}
	if len(out) == 0 && x.Job.Waits {
		return "next pass"
	}
	return strings.Join(out, "; ")
}

func queuePositions(t *testing.T, s *queue.Scheduler) map[string]int {
	t.Helper()
	jobs, err := s.Snapshot(t.Context())
	require.NoError(t, err)
	out := map[string]int{}
	for _, j := range jobs {
		out[j.Object.GetName()] = j.Position
	}
	return out
}

// The example of the design, before a pass, after it, and when b1 has ended.
func TestExplainTheExample(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("b1", 1, "ns1", "ns2")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("b1", velerov1.BackupPhaseInProgress)
	b.createBackup("b2", 2, "ns2", "ns3", "ns5")
	b.createBackup("b3", 3, "ns4", "ns3")
	b.createBackup("b4", 4, "ns5", "ns6")
	b.createBackup("b5", 5, "ns8", "ns9")
	require.Equal(t, map[string]int{"b1": 0, "b2": 1, "b3": 2, "b4": 3, "b5": 4}, queuePositions(t, s))
	require.Equal(t, "next pass", explainInLine(t, s, "b5"))

	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, map[string]int{"b1": 0, "b2": 1, "b3": 2, "b4": 3, "b5": 0}, queuePositions(t, s))
	require.Equal(t, "running b1 ns2; full b1+b5", explainInLine(t, s, "b2"))
	require.Equal(t, "ahead b2 ns3; full b1+b5", explainInLine(t, s, "b3"))
	require.Equal(t, "ahead b2 ns5; full b1+b5", explainInLine(t, s, "b4"))
	require.Empty(t, explainInLine(t, s, "b5"), "it does not wait")
	require.Empty(t, explainInLine(t, s, "b1"))

	b.setPhase("b1", velerov1.BackupPhaseFinalizing)
	require.Equal(t, "next pass", explainInLine(t, s, "b2"), "which takes b1 out of the ledger")
	require.Equal(t, "ahead b2 ns3; full b5+b2", explainInLine(t, s, "b3"))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, "running b2 ns3; full b2+b5", explainInLine(t, s, "b3"))
	require.Equal(t, map[string]int{"b1": 0, "b2": 0, "b3": 1, "b4": 2, "b5": 0}, queuePositions(t, s))
}

func TestExplainWhoGoesFirst(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("all", 1)
	require.NoError(t, s.Pass(t.Context()))
	b.createRestore("r", 2, "ns2", "ns1")
	b.createBackup("first", 3, "ns1", "ns7")
	b.createBackup("second", 4, "ns7", "ns8")
	b.createBackup("urgent", 5, "ns9")
	b.setAnnotation("urgent", holdfast.AnnotationPriority, "high")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, map[string]int{"all": 0, "r": 1, "urgent": 2, "first": 3, "second": 4}, queuePositions(t, s))
	require.Equal(t, "running all ns1,ns7; restore r ns1", explainInLine(t, s, "first"))
	require.Equal(t, "running all ns7,ns8; ahead first ns7", explainInLine(t, s, "second"))

	b.setPhase("all", velerov1.BackupPhaseCompleted)
	require.Equal(t, "next pass", explainInLine(t, s, "urgent"))
	require.Equal(t, "restore r ns1", explainInLine(t, s, "first"))
	b.createBackup("last", 6, "ns9", "team-a")
	b.createBackup("more", 7, "team-b")
	require.Equal(t, "ahead urgent ns9", explainInLine(t, s, "last"), "which starts before it")
	require.Equal(t, "next pass", explainInLine(t, s, "more"))
	b.createBackup("none", 8, "ns1234")
	require.Equal(t, "full urgent+more", explainInLine(t, s, "none"), "which take the places first")
}

// What does not exist waits for the same as what was created last, and nothing becomes of it.
func TestForeseeWhatABackupWouldWaitFor(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("runs", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.createBackup("waits", 2, "ns1", "ns2")
	for name, tt := range map[string]struct {
		namespaces []string
		reasons    []queue.Reason
	}{
		"free":  {[]string{"ns3"}, nil},
		"both":  {[]string{"ns1"}, []queue.Reason{queue.OverlapRunning, queue.OverlapAhead}},
		"waits": {[]string{"ns2"}, []queue.Reason{queue.OverlapAhead}},
	} {
		o := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Spec: velerov1.BackupSpec{IncludedNamespaces: tt.namespaces}}
		x, problems, err := s.Foresee(t.Context(), o)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Equal(t, tt.namespaces, x.Job.Namespaces)
		var reasons []queue.Reason
		for _, obstacle := range x.Obstacles {
			reasons = append(reasons, obstacle.Reason)
		}
		require.Equal(t, tt.reasons, reasons, name)
		require.Equal(t, "computed", o.Spec.StorageLocation, "it is completed")
	}
	require.Equal(t, map[string]int{"runs": 0, "waits": 1}, queuePositions(t, s))
	_, _, err := b.newScheduler(withValidator(blind{&rules{}})).Foresee(t.Context(), &velerov1.Backup{})
	require.ErrorIs(t, err, errDown)
}

func TestABackupOfAPlanIsQueuedWithItsSpec(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("planned", 1)
	b.setAnnotation("planned", holdfast.AnnotationPlan, "of-ns1")
	b.createBackup("lost", 2)
	b.setAnnotation("lost", holdfast.AnnotationPlan, "none")
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"ns1"}, b.getBackup("planned").Spec.IncludedNamespaces)
	require.Equal(t, `["ns1"]`, b.getBackup("planned").Annotations[holdfast.AnnotationNamespaces])
	require.Equal(t, []string{"no such plan"}, b.getBackup("lost").Status.ValidationErrors)
}

func TestExplainPriorities(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("all", 0)
	require.NoError(t, s.Pass(t.Context()))
	b.createBackup("low", 1, "ns1")
	b.setAnnotation("low", holdfast.AnnotationPriority, "low")
	b.createBackup("other", 2, "ns2")
	b.createBackup("high", 3, "ns1")
	b.setAnnotation("high", holdfast.AnnotationPriority, "high")
	b.createBackup("old", -3600, "ns3")
	for range 2 { // new ones, then queued ones
		x, err := s.Explain(t.Context(), "low")
		require.NoError(t, err)
		require.Equal(t, validate.PriorityLow, x.Job.Class)
		require.Equal(t, validate.PriorityHigh, x.Job.Effective, "lent by the one behind that it overlaps with")
		x, err = s.Explain(t.Context(), "old")
		require.NoError(t, err)
		require.Equal(t, validate.PriorityNormal, x.Job.Class)
		require.Equal(t, validate.PriorityHigh, x.Job.Effective, "earned by waiting")
		require.NoError(t, s.Pass(t.Context()))
	}
	require.Equal(t, map[string]int{"all": 0, "old": 1, "low": 2, "high": 3, "other": 4}, queuePositions(t, s))
	require.Equal(t, "running all ns1; ahead low ns1; full all", explainInLine(t, s, "high"))
}

func TestExplainWhatDoesNotWait(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	_, err := s.Explain(t.Context(), "absent")
	require.ErrorIs(t, err, errgrpc.ErrNotFound)

	b.createBackup("done", 1, "ns1")
	b.setPhase("done", velerov1.BackupPhaseCompleted)
	b.createBackup("going", 2, "ns1")
	require.NoError(t, kube.Update(t.Context(), b.c, b.c, b.getBackup("going"), func(o *velerov1.Backup) error {
		o.Finalizers = []string{"test/stay"}
		o.Status.Phase = velerov1.BackupPhaseQueued
		return nil
	}))
	require.NoError(t, b.c.Delete(t.Context(), b.getBackup("going")))
	// Admitted, and the phase not written yet.
	b.createBackup("cut", 3, "ns1")
	b.setPhase("cut", velerov1.BackupPhaseQueued)
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{
		UID: "uid-cut", Kind: ledger.KindBackup, Namespace: "velero", Name: "cut", Namespaces: []string{"ns1"}, Since: start,
	}, ledger.Limits{}))
	for name, phase := range map[string]string{"done": "Completed", "going": "Queued", "cut": "Queued"} {
		x, err := s.Explain(t.Context(), name)
		require.NoError(t, err)
		require.False(t, x.Job.Waits, name)
		require.Empty(t, x.Obstacles, name)
		require.Equal(t, phase, x.Job.Phase)
		require.Zero(t, x.Job.Position)
	}
	jobs, err := s.Snapshot(t.Context())
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	require.Equal(t, start, jobs[1].Admitted.UTC())
	require.Equal(t, []string{"ns1"}, jobs[1].Namespaces)
	// The namespaces of the cluster cannot be read: nothing is made up.
	b.createBackup("b", 4, "ns*")
	s = b.newScheduler(withValidator(blind{b.rules}))
	_, err = s.Explain(t.Context(), "b")
	require.ErrorIs(t, err, errDown)
	jobs, err = s.Snapshot(t.Context())
	require.NoError(t, err)
	require.Empty(t, jobs[2].Namespaces)
}

// A restore that is not validated yet, or that the API server refuses to write, reserves no namespace
// in a pass, so it is no obstacle either.
func TestExplainNamesNoRestoreThatReservesNothing(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, refusingFuncs("bad", ""))
	s := b.newScheduler()
	b.createBackup("running", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.createRestore("bad", 2, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.createRestore("unknown", 3)
	b.createBackup("waits", 4, "ns1")
	require.Equal(t, "running running ns1; full running", explainInLine(t, s, "waits"))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, "running running ns1; restore unknown ns1; full running", explainInLine(t, s, "waits"), "it is validated now")
}

// The reason of a refused write holds the text of the API server.
func TestExplainShowsWhyAWriteIsRefused(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, refusingFuncs("bad", velerov1.BackupPhaseQueued))
	s := b.newScheduler()
	b.createBackup("bad", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	x, err := s.Explain(t.Context(), "bad")
	require.NoError(t, err)
	require.Len(t, x.Obstacles, 1)
	require.Equal(t, queue.WriteRefused, x.Obstacles[0].Reason)
	require.Contains(t, x.Obstacles[0].Message, "the API server refuses to write it")
	require.Contains(t, x.Obstacles[0].Message, errDown.Error())
	b.clock.Step(time.Minute)
	require.Equal(t, "next pass", explainInLine(t, s, "bad"), "which writes it again")
}

// A copy of a queued backup carries the number of the other one. It goes behind all the same, as
// the pass will put it there.
func TestACopiedNumberIsNoPlace(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("all", 0)
	require.NoError(t, s.Pass(t.Context()))
	b.createBackup("first", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.createBackup("copy", 2, "ns1")
	b.setAnnotation("copy", holdfast.AnnotationQueueSequence, "1")
	for range 2 {
		require.Equal(t, map[string]int{"all": 0, "first": 1, "copy": 2}, queuePositions(t, s))
		require.Equal(t, "running all ns1; ahead first ns1; full all", explainInLine(t, s, "copy"))
		require.NoError(t, s.Pass(t.Context()))
	}
}

// What is explained is what the next pass does, for random queues: those with nothing in their way
// start, and no others; positions are those it goes by.
func TestExplainIsWhatThePassDoes(t *testing.T) {
	started, waited := 0, 0
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 11))
		b := newBed(t, ledger.Limits{Backups: random.IntN(6), Restores: 2}, interceptor.Funcs{})
		s := b.newScheduler()
		names := submitRandom(b, s, random)
		before, err := s.Snapshot(t.Context())
		require.NoError(t, err)
		told := map[string]string{}
		for _, name := range names {
			told[name] = explainInLine(t, s, name)
		}
		require.NoError(t, s.Pass(t.Context()))
		for _, name := range names {
			o := b.getBackup(name)
			if told[name] == "next pass" {
				started++
				require.Equal(t, velerov1.BackupPhaseReadyToStart, o.Status.Phase, "seed %d: %s", seed, name)
			} else {
				waited++
				require.Equal(t, velerov1.BackupPhaseQueued, o.Status.Phase, "seed %d: %s: %s", seed, name, told[name])
			}
		}
		inOrder(t, b, before)
	}
	require.Greater(t, started, 10)
	require.Greater(t, waited, 50)
}

// submitRandom makes passes over some random backups, and leaves others for the test.
func submitRandom(b *bed, s *queue.Scheduler, random *rand.Rand) []string {
	some := func() []string {
		out := make([]string, 1+random.IntN(3))
		for i := range out {
			out[i] = fmt.Sprintf("ns%d", random.IntN(16))
		}
		return out
	}
	var names []string
	for i := range 14 {
		name := fmt.Sprintf("b%d", i)
		var namespaces []string // all
		if random.IntN(30) > 0 {
			namespaces = some()
		}
		b.createBackup(name, random.IntN(20), namespaces...)
		b.setAnnotation(name, holdfast.AnnotationPriority, []string{"low", "normal", "high"}[random.IntN(3)])
		names = append(names, name)
		if random.IntN(6) == 0 {
			b.createRestore(fmt.Sprintf("r%d", i), random.IntN(20), some()...)
		}
		if random.IntN(4) == 0 {
			require.NoError(b.t, s.Pass(b.t.Context()))
		}
	}
	// What runs ends, so that the next pass has something to start.
	for _, name := range names {
		if o := b.getBackup(name); o.Status.Phase == velerov1.BackupPhaseReadyToStart && random.IntN(6) > 0 {
			b.setPhase(name, velerov1.BackupPhaseCompleted)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		phase := b.getBackup(name).Status.Phase
		return !phase.IsNew() && phase != velerov1.BackupPhaseQueued
	})
}

// inOrder requires the backups that still wait to be in the order of the snapshot.
func inOrder(t *testing.T, b *bed, before []queue.Job) {
	t.Helper()
	list := &velerov1.BackupList{}
	require.NoError(t, b.c.List(t.Context(), list, client.InNamespace("velero")))
	queued := map[types.UID]bool{}
	for _, o := range list.Items {
		queued[o.UID] = o.Status.Phase == velerov1.BackupPhaseQueued
	}
	keep := func(jobs []queue.Job) []string {
		var names []string
		for _, j := range jobs {
			if queued[j.Object.GetUID()] {
				names = append(names, j.Object.GetName())
			}
		}
		return names
	}
	after, err := b.newScheduler().Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, keep(before), keep(after))
}
