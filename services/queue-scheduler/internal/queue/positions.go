package queue

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

// positionEvery is the time between two writes of positions: at most 5 a second, whatever the
// number of passes.
const positionEvery = 200 * time.Millisecond

// queuePlacement is a position that an object does not show yet. It names the object: a pointer would keep
// the list that the pass read until the position is written.
type queuePlacement struct {
	backup   types.NamespacedName
	uid      types.UID
	position int
}

// renumberView notes the positions that changed, front first. They are display: the order is that of
// Order.
func (s *Scheduler) renumberView(v *passView) {
	s.misplaced = nil
	for i, b := range v.queued {
		if b.Status.Phase == velerov1.BackupPhaseQueued && b.Status.QueuePosition != i+1 {
			s.misplaced = append(s.misplaced, queuePlacement{client.ObjectKeyFromObject(b), b.UID, i + 1})
		}
	}
}

// placeNext writes one position. One that fails is left to the next pass.
func (s *Scheduler) placeNext(ctx context.Context) {
	next := s.misplaced[0]
	s.misplaced = s.misplaced[1:]
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: next.backup.Namespace, Name: next.backup.Name, UID: next.uid}}
	b.Status.Phase = velerov1.BackupPhaseQueued
	err := s.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		b.Status.QueuePosition = next.position
		return nil
	})
	if err != nil {
		s.Log.WarnContext(ctx, "Failed to write queue position; will retry with the next pass", "backup", b.Name, "error", err)
		return
	}
	failpoint.Hit("queue-scheduler/position-written")
}
