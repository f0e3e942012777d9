package schedule

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// schedulePass is one pass over all Schedules.
type schedulePass struct {
	*Scheduler
	now time.Time
}

// handleSchedule does what is to be done about one Schedule now and returns when its next slot starts; zero
// when there is none to wait for.
func (p *schedulePass) handleSchedule(ctx context.Context, s *velerov1.Schedule) (time.Time, error) {
	set, problems := parseSettings(s, p.now)
	before := s.DeepCopy()
	kept, err := p.writeSchedule(ctx, s, func(s *velerov1.Schedule) { set.applyValidation(s, problems, p.SkipImmediately, p.now) })
	if err != nil || !kept {
		return time.Time{}, err
	}
	p.reportPhase(s, before.Status.Phase)
	if len(problems) > 0 || s.Spec.Paused {
		return time.Time{}, nil
	}
	if !s.Status.LastSkipped.Equal(before.Status.LastSkipped) {
		p.reportSkipped(s, set, before)
	}
	if _, reserved := s.Annotations[holdfast.AnnotationPendingSlot]; reserved {
		if kept, err := p.completeReserved(ctx, s, set.pending); err != nil || !kept {
			return time.Time{}, err
		}
	}
	if slot, due := set.dueSlot(s, p.now); due {
		if done, err := p.startSlot(ctx, s, set, slot); err != nil || !done {
			return time.Time{}, err
		}
	}
	return set.nextStart(s), nil
}

// startSlot makes the Backup of a slot, unless it has to wait for an earlier one.
func (p *schedulePass) startSlot(ctx context.Context, s *velerov1.Schedule, set scheduleSettings, slot time.Time) (bool, error) {
	if !set.allow {
		busy, err := p.runningBackup(ctx, s.Name)
		if err != nil {
			return false, err
		}
		if busy != "" {
			p.reportWaiting(s, slot, busy)
			return false, nil
		}
	}
	kept, err := p.writeSchedule(ctx, s, func(s *velerov1.Schedule) { reserveSlot(s, slot, p.now) })
	if err != nil || !kept {
		return false, err
	}
	return p.completeReserved(ctx, s, slot)
}

// completeReserved keeps the promise of a reserved slot. The reservation stays until the Backup is known to
// exist.
func (p *schedulePass) completeReserved(ctx context.Context, s *velerov1.Schedule, slot time.Time) (bool, error) {
	b := holdfast.ScheduledBackup(s, holdfast.ScheduledBackupName(s.Name, slot))
	err := p.Client.Create(ctx, b)
	switch {
	case err == nil:
		p.reportCreated(s, b.Name, slot)
	case apierrors.IsAlreadyExists(err):
		if err := p.adoptExisting(ctx, s, b); err != nil {
			return false, err
		}
	default:
		p.Events.Eventf(s, nil, corev1.EventTypeWarning, "BackupNotCreated", "Create", "backup %s: %v", b.Name, err)
		return false, fmt.Errorf("create backup %s: %w", b.Name, err)
	}
	return p.writeSchedule(ctx, s, func(s *velerov1.Schedule) { delete(s.Annotations, holdfast.AnnotationPendingSlot) })
}

// adoptExisting handles an existing object with the name of a slot's Backup: nearly always an earlier
// try's. Another user's keeps the name, and the slot is over.
func (p *schedulePass) adoptExisting(ctx context.Context, s *velerov1.Schedule, b *velerov1.Backup) error {
	found := &velerov1.Backup{}
	if err := p.Reader.Get(ctx, client.ObjectKeyFromObject(b), found); err != nil {
		return client.IgnoreNotFound(err) // made, and deleted meanwhile
	}
	if found.Labels[velerov1.LabelScheduleName] != s.Name {
		p.Log.Warn("Another backup has the name of the scheduled backup; skipping the slot", "schedule", s.Name, "backup", b.Name)
		p.Events.Eventf(s, nil, corev1.EventTypeWarning, "NameTaken", "Create", "backup %s exists and is not of this schedule", b.Name)
	}
	return nil
}

// runningBackup names a Backup of the schedule that waits or runs, or nothing. The cache is cheap to
// ask while a slot waits, and may be behind: where it knows of none the API server is asked. Velero
// counts New and InProgress alone, so that a slow queue fills with backups.
func (p *schedulePass) runningBackup(ctx context.Context, schedule string) (string, error) {
	for _, reader := range []client.Reader{p.Jobs, p.Reader} {
		list := &velerov1.BackupList{}
		if err := reader.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels{velerov1.LabelScheduleName: schedule}); err != nil {
			return "", fmt.Errorf("list backups: %w", err)
		}
		for i := range list.Items {
			if isBlocking(&list.Items[i]) {
				return list.Items[i].Name, nil
			}
		}
	}
	return "", nil
}

func isBlocking(b *velerov1.Backup) bool {
	switch b.Status.Phase {
	case "", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:
		return b.DeletionTimestamp == nil
	default:
		return false
	}
}

// writeSchedule changes the Schedule if it is still as it was read; false means that it is not, or is gone,
// and that the next pass reads it again.
func (p *schedulePass) writeSchedule(ctx context.Context, s *velerov1.Schedule, mutate func(*velerov1.Schedule)) (bool, error) {
	before := s.DeepCopy()
	mutate(s)
	if equality.Semantic.DeepEqual(before, s) {
		return true, nil
	}
	err := p.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsConflict(err):
		p.Wake()
		return false, nil
	case apierrors.IsNotFound(err):
		return false, nil
	default:
		return false, fmt.Errorf("patch: %w", err)
	}
}
