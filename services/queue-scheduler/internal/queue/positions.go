package queue

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
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

// positionWriter writes the place in the queue onto backups, one at a time. Only Run uses it.
type positionWriter struct {
	writer    *backupWriter
	clock     clock.WithTicker
	log       *slog.Logger
	misplaced []queuePlacement // positions to be written, front first
	placed    time.Time        // when the last one was
}

// renumberView notes the positions that changed, front first. They are display: the order is that of
// Order.
func (p *positionWriter) renumberView(v *passView) {
	p.misplaced = nil
	for i, b := range v.queued {
		if b.Status.Phase == velerov1.BackupPhaseQueued && b.Status.QueuePosition != i+1 {
			p.misplaced = append(p.misplaced, queuePlacement{client.ObjectKeyFromObject(b), b.UID, i + 1})
		}
	}
}

// nextPlacement returns a channel that delivers when the next position may be written, nil when
// there is none to write, and what ends the waiting.
func (p *positionWriter) nextPlacement() (due <-chan time.Time, stop func()) {
	if len(p.misplaced) == 0 {
		return nil, func() {}
	}
	left := positionEvery - p.clock.Since(p.placed)
	if left <= 0 {
		now := make(chan time.Time)
		close(now)
		return now, func() {}
	}
	timer := p.clock.NewTimer(left)
	return timer.C(), func() { timer.Stop() }
}

// placeNext writes one position. One that fails is left to the next pass.
func (p *positionWriter) placeNext(ctx context.Context) {
	next := p.misplaced[0]
	p.misplaced = p.misplaced[1:]
	p.placed = p.clock.Now()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: next.backup.Namespace, Name: next.backup.Name, UID: next.uid}}
	b.Status.Phase = velerov1.BackupPhaseQueued
	err := p.writer.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		b.Status.QueuePosition = next.position
		return nil
	})
	if err != nil {
		p.log.WarnContext(ctx, "Failed to write queue position; will retry with the next pass", "backup", b.Name, "error", err)
		return
	}
	failpoint.Hit("queue-scheduler/position-written")
}
