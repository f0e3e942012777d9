package queue

import (
	"context"
	"slices"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Pass lets a test drive single passes.
func (s *Scheduler) Pass(ctx context.Context) error { return s.pass(ctx, true) }

// IgnoreQueuedAhead seeds a bug: who waits claims nothing.
func (s *Scheduler) IgnoreQueuedAhead() { s.claim = func(*claims, string, []string) {} }

// IgnoreReadyToStart seeds a bug: only what is in progress keeps its entry.
func (s *Scheduler) IgnoreReadyToStart() {
	s.holding = slices.DeleteFunc(beforeOver(), func(p velerov1.BackupPhase) bool { return p == velerov1.BackupPhaseReadyToStart })
}

// CountFinalizing seeds a bug: a backup that finalizes keeps its place.
func (s *Scheduler) CountFinalizing() {
	s.holding = append(beforeOver(), velerov1.BackupPhaseFinalizing)
}
