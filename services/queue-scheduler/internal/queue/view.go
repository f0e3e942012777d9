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
	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// view is what one pass goes by.
type view struct {
	entries []ledger.Entry
	fresh   []*velerov1.Backup              // new ones, oldest first
	queued  []*velerov1.Backup              // in queue order
	ready   []*velerov1.Backup              // admitted, no runner yet
	pending []*velerov1.Restore             // new ones, oldest first
	orphans []job                           // running ones, to be found in the ledger
	traced  map[types.UID]*velerov1.Restore // unfinished ones, which know their trace
	live    *liveNamespaces                 // read when first needed
	spaces  map[types.UID][]string          // what resolve found
}

// look reads ledger and objects. The ledger comes first: an entry made after it
// was read belongs to an object that is listed as waiting, and admitting that
// again changes nothing.
func (s *Scheduler) look(ctx context.Context) (*view, error) {
	v := &view{traced: map[types.UID]*velerov1.Restore{}, spaces: map[types.UID][]string{}}
	var err error
	if v.entries, err = s.Ledger.List(ctx); err != nil {
		return nil, err
	}
	backups := &velerov1.BackupList{}
	if err := s.Reader.List(ctx, backups, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	for i := range backups.Items {
		v.sort(&backups.Items[i])
	}
	restores := &velerov1.RestoreList{}
	if err := s.Reader.List(ctx, restores, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores: %w", err)
	}
	for i := range restores.Items {
		v.sortRestore(&restores.Items[i])
	}
	slices.SortFunc(v.fresh, func(a, b *velerov1.Backup) int { return older(a, b) })
	slices.SortFunc(v.pending, func(a, b *velerov1.Restore) int { return older(a, b) })
	slices.SortFunc(v.queued, ahead)
	return v, nil
}

func (v *view) sort(b *velerov1.Backup) {
	switch phase := b.Status.Phase; {
	case b.DeletionTimestamp != nil:
	case phase.IsNew():
		v.fresh = append(v.fresh, b)
	case phase == velerov1.BackupPhaseQueued:
		v.queued = append(v.queued, b)
	case phase == velerov1.BackupPhaseReadyToStart:
		v.ready = append(v.ready, b)
		v.expect(job{backup: b})
	case phase == velerov1.BackupPhaseInProgress:
		v.expect(job{backup: b})
	}
}

func (v *view) sortRestore(r *velerov1.Restore) {
	if !r.Status.Phase.Terminal() {
		v.traced[r.UID] = r
	}
	switch phase := r.Status.Phase; {
	case phase.IsNew() && r.DeletionTimestamp == nil:
		v.pending = append(v.pending, r)
	case phase == velerov1.RestorePhaseInProgress:
		v.expect(job{restore: r})
	}
}

func older(a, b metav1.Object) int {
	ta, tb := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(ta.Compare(tb.Time), cmp.Compare(a.GetName(), b.GetName()))
}

// ahead is the order of the queue.
func ahead(a, b *velerov1.Backup) int {
	return cmp.Or(cmp.Compare(sequence(a), sequence(b)), older(a, b))
}

// sequence is the number a job got when it entered the queue; an unreadable one,
// which no replica of ours writes, goes last.
func sequence(obj metav1.Object) int64 {
	n, err := strconv.ParseInt(obj.GetAnnotations()[holdfast.AnnotationQueueSequence], 10, 64)
	if err != nil || n < 1 {
		return 1<<63 - 1
	}
	return n
}

func (v *view) admitted(uid types.UID) bool {
	return slices.ContainsFunc(v.entries, func(e ledger.Entry) bool { return e.UID == uid })
}

func (v *view) waits(uid types.UID) bool {
	return slices.ContainsFunc(v.queued, func(b *velerov1.Backup) bool { return b.UID == uid }) ||
		slices.ContainsFunc(v.pending, func(r *velerov1.Restore) bool { return r.UID == uid })
}
