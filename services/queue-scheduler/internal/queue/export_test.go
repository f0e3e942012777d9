package queue

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// Pass lets a test drive single passes. It first validates the restores that are validated beside
// passes, and writes all positions at once.
func (s *Scheduler) Pass(ctx context.Context) error {
	s.validations.SetLimit(0) // they are validated here, one after another
	invalid := s.validateRestores(ctx)
	err := errors.Join(invalid, s.runPass(ctx, true))
	for len(s.misplaced) > 0 {
		s.placeNext(ctx)
	}
	return err
}

func (s *Scheduler) validateRestores(ctx context.Context) error {
	list := &velerov1.RestoreList{}
	if err := s.Jobs.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return err
	}
	s.Validator.Forget()
	var errs []error
	for i := range list.Items {
		r := &list.Items[i]
		if r.Status.Phase.IsNew() && !mark.IsValidated(r) && ledger.IsAll(targetNamespaces(r)) && s.refused.currentError(r) == nil {
			if err := s.validateRestore(ctx, r); !s.noteRefused(r, err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// PassAndPlaceOne makes a pass and writes one position, as Run does while a long queue moves.
func (s *Scheduler) PassAndPlaceOne(ctx context.Context) error {
	err := s.runPass(ctx, true)
	if len(s.misplaced) > 0 {
		s.placeNext(ctx)
	}
	return err
}

// EnqueueLimit is what one pass queues.
const EnqueueLimit = enqueueLimit

// View is what an admission decides by.
type View = passView

// ViewOf is a view as look reads it: queued backups, and the ledger.
func ViewOf(limits ledger.Limits, entries []ledger.Entry, backups []*velerov1.Backup) *View {
	v := newView(entries)
	v.limits = limits
	for _, b := range backups {
		v.classifyBackup(b)
	}
	return v
}

// Admit lets a test walk the queue alone.
func (s *Scheduler) Admit(ctx context.Context, v *View) error { return s.admitBackups(ctx, v) }

// Told is how many jobs have a reported reason why they wait.
func (s *Scheduler) Told() int { return len(s.reasons.reported) }

// ObstacleFor is why a backup of these namespaces has to wait beside what runs.
func ObstacleFor(running []ledger.Entry, namespaces []string) error {
	return newAdmission(ledger.KindBackup, 0, running).obstacleFor(&ledger.Entry{Namespaces: namespaces})
}
