package queue

import (
	"context"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

// positionEvery is the time between two writes of positions: at most 5 a second,
// whatever the number of passes.
const positionEvery = 200 * time.Millisecond

// placement is a position that an object does not show yet.
type placement struct {
	backup   *velerov1.Backup
	position int
}

// renumber notes the positions that changed, front first. They are display: the
// order is that of Order.
func (s *Scheduler) renumber(v *view) {
	s.misplaced = s.misplaced[:0]
	for i, b := range v.queued {
		if b.Status.Phase == velerov1.BackupPhaseQueued && b.Status.QueuePosition != i+1 {
			s.misplaced = append(s.misplaced, placement{b, i + 1})
		}
	}
}

// nextPlacement returns a channel that tells when the next position may be
// written, nil when there is none to write, and what ends the waiting.
func (s *Scheduler) nextPlacement() (due <-chan time.Time, stop func()) {
	if len(s.misplaced) == 0 {
		return nil, func() {}
	}
	left := positionEvery - s.Clock.Since(s.placed)
	if left <= 0 {
		now := make(chan time.Time)
		close(now)
		return now, func() {}
	}
	timer := s.Clock.NewTimer(left)
	return timer.C(), func() { timer.Stop() }
}

// place writes one position. One that fails is left to the next pass.
func (s *Scheduler) place(ctx context.Context) {
	next := s.misplaced[0]
	s.misplaced = s.misplaced[1:]
	s.placed = s.Clock.Now()
	err := s.update(ctx, next.backup, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		b.Status.QueuePosition = next.position
		return nil
	})
	if err != nil {
		s.Log.WarnContext(ctx, "position not written, the next pass will", "backup", next.backup.Name, "error", err)
		return
	}
	failpoint.Hit("queue-scheduler/position-written")
}
