package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// passView is what one pass goes by.
type passView struct {
	limits     ledger.Limits
	entries    []ledger.Entry
	entered    map[types.UID]struct{}          // the UIDs of the entries
	holds      map[types.UID]bool              // admitted, and listed in a phase that keeps its entry
	fresh      []*velerov1.Backup              // new ones, oldest first
	dryRuns    []*velerov1.Backup              // new ones that a runner plans, beside the queue
	queued     []*velerov1.Backup              // in queue order from admit on
	ready      []*velerov1.Backup              // admitted, no runner yet
	pending    []*velerov1.Restore             // new ones, oldest first
	unfinished []client.Object                 // every one of them, for those who read the queue
	orphans    []client.Object                 // running ones, to be found in the ledger
	unlisted   []ledger.Entry                  // of those, the ones that have to wait again
	traced     map[types.UID]*velerov1.Restore // unfinished ones, which know their trace
	oldest     *velerov1.Restore               // that later restores wait for, without a UID for none; nil before it is looked for
	// oldestRunning is the oldest of those that run. Creation times have whole seconds, within which names decide between the others.
	oldestRunning *velerov1.Restore
	live          *liveNamespaces        // read when first needed
	spaces        map[types.UID][]string // what resolve found
	away          map[string]*awayError  // by location, nil for an available one
	moved         bool                   // the ledger changed, so the order of admission may have
}

// readView reads the ledger from the API server, and the unfinished jobs from a reader that may be a
// cache. An entry made after the ledger was read belongs to an object that is listed as waiting, and
// admitting that again changes nothing.
func (s *Scheduler) readView(ctx context.Context, jobs client.Reader) (*passView, error) {
	entries, err := s.Ledger.List(ctx)
	if err != nil {
		return nil, err
	}
	v := newView(entries)
	if v.limits, err = s.Limits(ctx); err != nil {
		return nil, err
	}
	backups, restores := &velerov1.BackupList{}, &velerov1.RestoreList{}
	for _, list := range []client.ObjectList{backups, restores} {
		if err := jobs.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
	}
	for i := range backups.Items {
		v.classifyBackup(&backups.Items[i])
		v.noteAdmitted(&backups.Items[i])
	}
	for i := range restores.Items {
		v.classifyRestore(&restores.Items[i])
	}
	slices.SortFunc(v.fresh, func(a, b *velerov1.Backup) int { return compareAge(a, b) })
	slices.SortFunc(v.pending, func(a, b *velerov1.Restore) int { return compareAge(a, b) })
	return v, nil
}

func newView(entries []ledger.Entry) *passView {
	v := &passView{
		entries: entries, entered: make(map[types.UID]struct{}, len(entries)), holds: make(map[types.UID]bool, len(entries)),
		traced: map[types.UID]*velerov1.Restore{}, spaces: map[types.UID][]string{},
		away: map[string]*awayError{},
	}
	for i := range entries {
		v.entered[entries[i].UID] = struct{}{}
	}
	return v
}

// noteEntered notes what was admitted.
func (v *passView) noteEntered(e ledger.Entry) {
	v.entries = append(v.entries, e)
	v.entered[e.UID] = struct{}{}
}

// noteAdmitted notes an admitted backup that has not run yet.
func (v *passView) noteAdmitted(b *velerov1.Backup) {
	if v.isAdmitted(b.UID) && keepsEntry(b.Status.Phase) {
		v.holds[b.UID] = true
	}
}

func (v *passView) classifyBackup(b *velerov1.Backup) {
	if mark.IsDryRun(b, b.Status.Phase.IsNew()) {
		v.dryRuns = append(v.dryRuns, b)
		return
	}
	if !b.Status.Phase.Terminal() {
		v.unfinished = append(v.unfinished, b)
	}
	switch phase := b.Status.Phase; {
	case b.DeletionTimestamp != nil:
	case phase.IsNew():
		v.fresh = append(v.fresh, b)
	case phase == velerov1.BackupPhaseQueued:
		v.queued = append(v.queued, b)
	case phase == velerov1.BackupPhaseReadyToStart:
		v.ready = append(v.ready, b)
		v.expectJob(b)
	case phase == velerov1.BackupPhaseInProgress:
		v.expectJob(b)
	}
}

func (v *passView) classifyRestore(r *velerov1.Restore) {
	if mark.IsDryRun(r, r.Status.Phase.IsNew()) {
		return // a runner plans it, beside the queue
	}
	if !r.Status.Phase.Terminal() {
		v.traced[r.UID] = r
		v.unfinished = append(v.unfinished, r)
		v.holds[r.UID] = v.isAdmitted(r.UID) && (r.Status.Phase.IsNew() || r.Status.Phase == velerov1.RestorePhaseInProgress)
	}
	switch phase := r.Status.Phase; {
	case phase.IsNew() && r.DeletionTimestamp == nil:
		v.pending = append(v.pending, r)
	case phase == velerov1.RestorePhaseInProgress:
		v.expectJob(r)
	}
}

func compareAge(a, b metav1.Object) int {
	ta, tb := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(ta.Compare(tb.Time), cmp.Compare(a.GetName(), b.GetName()))
}

// sequenceNumber is the number a job got when it entered the queue; an unreadable one, which no replica
// of ours writes, goes last.
func sequenceNumber(obj metav1.Object) int64 {
	n, err := strconv.ParseInt(obj.GetAnnotations()[holdfast.AnnotationQueueSequence], 10, 64)
	if err != nil || n < 1 {
		return 1<<63 - 1
	}
	return n
}

func (v *passView) isAdmitted(uid types.UID) bool {
	_, ok := v.entered[uid]
	return ok
}

// maxSequence bounds the numbers that lastSequence accepts: an annotation edited by a user must not
// use up all numbers.
const maxSequence = 1 << 53

// lastSequence is the highest number of a backup that waits; 0 without one.
func (v *passView) lastSequence() int64 {
	last := int64(0)
	for _, b := range v.queued {
		if n := sequenceNumber(b); n < maxSequence {
			last = max(last, n)
		}
	}
	return last
}
