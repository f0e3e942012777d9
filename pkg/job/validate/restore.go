package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Restore completes a Restore in place, also when it has problems, and returns its problems. The
// error means that the cluster could not be asked: nothing is decided then.
func (v *Validator) Restore(ctx context.Context, r *velerov1.Restore) (Problems, error) {
	if !slices.Contains(r.Finalizers, velerov1.RestoreFinalizer) {
		r.Finalizers = append(r.Finalizers, velerov1.RestoreFinalizer)
	}
	problems := RestoreSpec(&r.Spec)
	problems.checkAnnotations(r.Annotations)
	for _, annotation := range []string{holdfast.AnnotationIgnoreRunning, holdfast.AnnotationPreserveAddresses, holdfast.AnnotationOverwriteVolumes} {
		if value, set := r.Annotations[annotation]; set && value != "true" && value != "false" {
			problems.addProblem("metadata.annotations["+annotation+"]", "%q is neither true nor false", value)
		}
	}
	if _, err := restoreorder.ParseOrder(r.Annotations[holdfast.AnnotationOrder]); err != nil {
		problems.addProblem("metadata.annotations["+holdfast.AnnotationOrder+"]", "%s", err)
	}
	if _, err := restoreorder.ParseRuns(r.Annotations[holdfast.AnnotationRunAgain]); err != nil {
		problems.addProblem("metadata.annotations["+holdfast.AnnotationRunAgain+"]", "%s", err)
	}
	if _, err := restoreorder.ParseRunningJobs(r.Annotations[holdfast.AnnotationRunningJobs]); err != nil {
		problems.addProblem("metadata.annotations["+holdfast.AnnotationRunningJobs+"]", "%s", err)
	}
	var wrong *selection.ItemsError
	if _, err := selection.ParseItems(r.Annotations); errors.As(err, &wrong) {
		problems.addProblem(wrong.Field, "%s", wrong.Err)
	}
	r.Spec.ExcludedResources = append(r.Spec.ExcludedResources, missingNames(r.Spec.ExcludedResources, selection.NonRestorable)...)
	orDefault(&r.Spec.ItemOperationTimeout, v.Defaults.ItemOperationTimeout)
	if r.Spec.BackupName == "" && r.Spec.ScheduleName != "" {
		if err := v.newestOfSchedule(ctx, r, &problems); err != nil {
			return nil, err
		}
	}
	if r.Spec.BackupName != "" {
		if err := v.checkSource(ctx, r, &problems); err != nil {
			return nil, err
		}
	}
	return problems, nil
}

// newestOfSchedule names the newest completed backup of the schedule.
func (v *Validator) newestOfSchedule(ctx context.Context, r *velerov1.Restore, problems *Problems) error {
	list := &velerov1.BackupList{}
	err := v.Reader.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingLabels{velerov1.LabelScheduleName: r.Spec.ScheduleName})
	if err != nil && !apierrors.IsBadRequest(err) { // a name that is no label value labels nothing
		return fmt.Errorf("list the backups of schedule %s: %w", r.Spec.ScheduleName, err)
	}
	var newest *velerov1.Backup
	for i := range list.Items {
		b := &list.Items[i]
		if b.Status.Phase != velerov1.BackupPhaseCompleted || b.Status.StartTimestamp == nil {
			continue
		}
		if newest == nil || newest.Status.StartTimestamp.Before(b.Status.StartTimestamp) {
			newest = b
		}
	}
	if newest == nil {
		problems.addProblem("spec.scheduleName", "no completed backup of schedule %q found", r.Spec.ScheduleName)
		return nil
	}
	r.Spec.BackupName = newest.Name
	return nil
}

// checkSource checks the backup and its location. Any phase of the backup but Deleting will do.
func (v *Validator) checkSource(ctx context.Context, r *velerov1.Restore, problems *Problems) error {
	b := &velerov1.Backup{}
	err := v.Reader.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: r.Spec.BackupName}, b)
	if apierrors.IsNotFound(err) {
		problems.addProblem("spec.backupName", "backup %q not found", r.Spec.BackupName)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read backup %s: %w", r.Spec.BackupName, err)
	}
	if problem := deletingError(b); problem != "" {
		problems.addProblem("spec.backupName", "%s", problem)
		return nil
	}
	if r.Spec.ScheduleName == "" {
		r.Spec.ScheduleName = b.Labels[velerov1.LabelScheduleName]
	}
	_, err = v.availableLocation(ctx, "spec.backupName", b.Spec.StorageLocation, problems)
	return err
}

// Source checks again that the backup of a restore that has waited is not being deleted by now. A
// backup that is gone is detected by the runner of the restore.
func (v *Validator) Source(ctx context.Context, r *velerov1.Restore) (Problems, error) {
	var problems Problems
	b := &velerov1.Backup{}
	err := v.Reader.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: r.Spec.BackupName}, b)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read backup %s: %w", r.Spec.BackupName, err)
	}
	if problem := deletingError(b); err == nil && problem != "" {
		problems.addProblem("spec.backupName", "%s", problem)
	}
	return problems, nil
}

// deletingError is the error of a restore from a backup whose data is being removed; "" if it is not.
func deletingError(b *velerov1.Backup) string {
	if b.Status.Phase != velerov1.BackupPhaseDeleting {
		return ""
	}
	return fmt.Sprintf("backup %q is being deleted", b.Name)
}
