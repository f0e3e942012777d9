package queue

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// Pass lets a test drive single passes, and writes all positions at once.
func (s *Scheduler) Pass(ctx context.Context) error {
	err := s.pass(ctx, true)
	for len(s.misplaced) > 0 {
		s.place(ctx)
	}
	return err
}

// EnqueueLimit is what one pass queues.
const EnqueueLimit = enqueueLimit

// View is what a walk goes by.
type View = view

// ViewOf is a view as look reads it: queued backups, and the ledger.
func ViewOf(limits ledger.Limits, entries []ledger.Entry, backups []*velerov1.Backup) *View {
	v := newView(entries)
	v.limits = limits
	for _, b := range backups {
		v.sort(b)
	}
	return v
}

// Admit lets a test walk the queue alone.
func (s *Scheduler) Admit(ctx context.Context, v *View) error { return s.admit(ctx, v) }

// Told is how many jobs were told why they wait.
func (s *Scheduler) Told() int { return len(s.told) }

// IgnoreQueuedAhead seeds a bug: who waits claims nothing.
func (s *Scheduler) IgnoreQueuedAhead() { s.claim = func(*claims, string, []string) {} }

// ForgetAtOnce seeds a bug: the entry of a job whose object is gone goes with it.
func (s *Scheduler) ForgetAtOnce() { s.ClaimTimeout = 0 }

// IgnoreReadyToStart seeds a bug: only what is in progress keeps its entry.
func (s *Scheduler) IgnoreReadyToStart() {
	s.holding = slices.DeleteFunc(beforeOver(), func(p velerov1.BackupPhase) bool { return p == velerov1.BackupPhaseReadyToStart })
}

// OvertakeIntoOverlaps seeds a bug: priority counts, whoever is in the way.
func (s *Scheduler) OvertakeIntoOverlaps() {
	s.arrange = func(waiting []Waiting, ageing time.Duration, now time.Time) {
		namespaces := map[types.UID][]string{}
		for i := range waiting {
			namespaces[waiting[i].Backup.UID], waiting[i].Namespaces = waiting[i].Namespaces, nil
		}
		Order(waiting, ageing, now)
		for i := range waiting {
			waiting[i].Namespaces = namespaces[waiting[i].Backup.UID]
		}
	}
}

// CountFinalizing seeds a bug: a backup that finalizes keeps its place.
func (s *Scheduler) CountFinalizing() {
	s.holding = append(beforeOver(), velerov1.BackupPhaseFinalizing)
}
