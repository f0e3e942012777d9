package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// dryRunsOfPass bounds the dry runs that one pass completes: each reads the queue.
const dryRunsOfPass = 4

// completeDryRuns validates and completes the backups that are dry runs; a runner does the rest.
func (s *Scheduler) completeDryRuns(ctx context.Context, v *passView) error {
	fresh := slices.DeleteFunc(v.dryRuns, func(b *velerov1.Backup) bool { return mark.IsValidated(b) || s.refused.currentError(b) != nil })
	var errs []error
	for _, b := range fresh[:min(len(fresh), dryRunsOfPass)] {
		if err := s.completeDryRun(ctx, b); err != nil && !s.noteRefused(b, err) {
			errs = append(errs, fmt.Errorf("complete the dry run of backup %s: %w", b.Name, err))
		}
	}
	if len(fresh) > dryRunsOfPass && len(errs) == 0 {
		s.Wake()
	}
	return errors.Join(errs...)
}

// completeDryRun writes what a runner plans: the computed spec, marked, with its namespaces and, in
// status.validationErrors, what it would wait for. A backup with problems fails validation.
func (s *Scheduler) completeDryRun(ctx context.Context, b *velerov1.Backup) error {
	return s.updateBackup(ctx, b, velerov1.BackupPhaseNew, func(b *velerov1.Backup) error {
		problems, err := s.Validator.ApplyPlan(ctx, b)
		if err != nil {
			return err
		}
		x, more, err := s.Foresee(ctx, b)
		if err != nil {
			return err
		}
		if problems = append(problems, more...); x == nil || len(problems.LastingProblems()) > 0 {
			failValidation(b, problems.Strings())
			return nil
		}
		if err := setNamespaces(b, x.Job.Namespaces); err != nil {
			return err
		}
		if _, noted := b.Annotations[holdfast.AnnotationNamespaces]; !noted {
			failValidation(b, []string{"spec.includedNamespaces: selects too many namespaces for a dry run by annotation"})
			return nil
		}
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, holdfast.AnnotationValidated, string(b.UID))
		if len(x.Obstacles) > 0 {
			b.Status.ValidationErrors = []string{"it would wait: " + x.String()}
		}
		return nil
	})
}
