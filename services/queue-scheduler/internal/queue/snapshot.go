package queue

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// Job is an unfinished backup or restore as it is listed to readers of the queue.
type Job struct {
	Kind   string // ledger.KindBackup or ledger.KindRestore
	Object metav1.Object
	Phase  string // "New" while it has none
	// Waits reports that it is neither admitted nor on its way out. Position is its place among
	// those that wait, 1 is next; 0 for the others.
	Waits    bool
	Position int
	// Sequence is the number it got when it entered the queue; 0 before.
	Sequence int64
	// Namespaces are sorted; empty while they are not known.
	Namespaces []string
	// Admitted is when it was; zero for what is not in the ledger.
	Admitted time.Time
	// Class and Effective are those of a backup that waits: as submitted, and as it counts now.
	// Normal for every other job.
	Class, Effective validate.Priority
}

// Snapshot reads the whole queue: what is admitted or further, oldest first, then the restores that
// wait, then the backups that wait in the order in which the next pass handles them. New backups
// are placed where that pass will put them. It may be called at any time, on every replica; errors
// are the API server's.
func (s *Scheduler) Snapshot(ctx context.Context) ([]Job, error) {
	v, err := s.readView(ctx, s.Reader)
	if err != nil {
		return nil, err
	}
	return v.queueJobs(s.foreseeLine(ctx, v)), nil
}

// foreseeLine makes v what the next pass finds once it has queued what is new, and returns the line of
// backups in its order. What is admitted waits no more, even if its phase was not written yet.
func (s *Scheduler) foreseeLine(ctx context.Context, v *passView) []Waiting {
	admitted := func(b *velerov1.Backup) bool { return v.isAdmitted(b.UID) }
	v.pending = slices.DeleteFunc(v.pending, func(r *velerov1.Restore) bool { return v.isAdmitted(r.UID) })
	v.queued = slices.DeleteFunc(v.queued, admitted)
	for _, b := range slices.DeleteFunc(v.fresh, admitted) {
		if sequenceNumber(b) != math.MaxInt64 { // a copy of another object, with that one's number
			b = b.DeepCopy()
			delete(b.Annotations, holdfast.AnnotationQueueSequence)
		}
		v.queued = append(v.queued, b)
	}
	v.fresh = nil
	return s.queueLine(ctx, v)
}

// queueJobs is the queue for people: line are the backups that wait.
func (v *passView) queueJobs(line []Waiting) []Job {
	out := v.begunJobs()
	for _, r := range v.pending {
		j := newJob(r)
		j.Waits, j.Namespaces = true, slices.Sorted(slices.Values(targetNamespaces(r)))
		out = append(out, j)
	}
	for _, w := range line {
		j := newJob(w.Backup)
		j.Waits, j.Namespaces, j.Effective = true, v.spaces[w.Backup.UID], w.Class
		j.Class, _ = validate.PriorityOf(w.Backup.Annotations) // validation reports a bad one
		out = append(out, j)
	}
	position := 0
	for i := range out {
		if out[i].Waits {
			position++
			out[i].Position = position
		}
	}
	return out
}

// begunJobs are the unfinished jobs that do not wait: admitted, running, finishing or being deleted.
func (v *passView) begunJobs() []Job {
	entries := make(map[types.UID]ledger.Entry, len(v.entries))
	for _, e := range v.entries {
		entries[e.UID] = e
	}
	waits := make(map[types.UID]bool, len(v.queued)+len(v.pending))
	for _, b := range v.queued {
		waits[b.UID] = true
	}
	for _, r := range v.pending {
		waits[r.UID] = true
	}
	var out []Job
	for _, j := range v.unfinished {
		if uid := j.GetUID(); !waits[uid] {
			e := entries[uid]
			shown := newJob(j)
			shown.Admitted, shown.Namespaces = e.Since, e.Namespaces
			out = append(out, shown)
		}
	}
	slices.SortFunc(out, func(a, b Job) int {
		return cmp.Or(cmp.Compare(sequenceNumber(a.Object), sequenceNumber(b.Object)), compareAge(a.Object, b.Object))
	})
	return out
}

func newJob(o client.Object) Job {
	shown := Job{Kind: kindOf(o), Object: o, Sequence: sequenceNumber(o)}
	if shown.Sequence == math.MaxInt64 {
		shown.Sequence = 0
	}
	switch o := o.(type) {
	case *velerov1.Backup:
		shown.Phase = string(o.Status.Phase)
	case *velerov1.Restore:
		shown.Phase = string(o.Status.Phase)
	}
	shown.Phase = cmp.Or(shown.Phase, string(velerov1.BackupPhaseNew))
	return shown
}
