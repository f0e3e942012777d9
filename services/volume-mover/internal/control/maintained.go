package control

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// Results of a run (Velero 1.18).
const (
	maintenanceSucceeded velerov1.BackupRepositoryMaintenanceResult = "Succeeded"
	maintenanceFailed    velerov1.BackupRepositoryMaintenanceResult = "Failed"
)

// recentRuns is how many runs a BackupRepository lists (Velero 1.18).
const recentRuns = 3

// noteMaintenance writes down a run of maintenance. One that found the repository maintained by another program stops
// it until a user says otherwise.
func (c *Controller) noteMaintenance(ctx context.Context, r *velerov1.BackupRepository, begin metav1.Time, result outcome.Result) error {
	end, succeeded, noted := metav1.NewTime(c.Clock.Now()), result.Phase == outcome.Completed, false
	err := kube.Update(ctx, c.Reader, c.Client, r, func(fresh *velerov1.BackupRepository) error {
		if noted = addMaintenanceRun(&fresh.Status, begin, end, result); !noted {
			return kube.ErrSkip
		}
		if result.Foreign != "" {
			metav1.SetMetaDataAnnotation(&fresh.ObjectMeta, holdfast.AnnotationMaintenanceStopped, result.Foreign)
		}
		return nil
	})
	if err != nil || !noted {
		return client.IgnoreNotFound(err)
	}
	c.Metrics.countMaintenance(r.Name, succeeded, end.Sub(begin.Time))
	args := []any{"repository", r.Name, "succeeded", succeeded, "message", result.Message, "took", end.Sub(begin.Time).Round(time.Second).String()}
	if succeeded {
		c.Log.InfoContext(ctx, "Maintenance of a repository ended", args...)
		return nil
	}
	c.Log.WarnContext(ctx, "Maintenance of a repository failed", args...)
	if result.Foreign != "" {
		c.Events.Eventf(r, nil, corev1.EventTypeWarning, "ForeignMaintenance", "Maintain",
			"%s; once it no longer does: kubectl -n %s annotate backuprepository %s %s-", result.Message, r.Namespace, r.Name, holdfast.AnnotationMaintenanceStopped)
	}
	return nil
}

// addMaintenanceRun adds a run to the status, unless an earlier look did.
func addMaintenanceRun(s *velerov1.BackupRepositoryStatus, begin, end metav1.Time, result outcome.Result) bool {
	run := velerov1.BackupRepositoryMaintenanceStatus{
		Result: maintenanceFailed, StartTimestamp: &begin, CompleteTimestamp: &end, Message: result.Message,
	}
	if n := len(s.RecentMaintenance); n > 0 && s.RecentMaintenance[n-1].StartTimestamp.Equal(&begin) {
		return false
	}
	switch {
	case result.Unopened:
		s.Phase, s.Message = velerov1.BackupRepositoryPhaseNotReady, result.Message
	case result.Phase == outcome.Completed:
		run.Result, s.LastMaintenanceTime = maintenanceSucceeded, &end
		s.Phase, s.Message = velerov1.BackupRepositoryPhaseReady, ""
	}
	s.RecentMaintenance = append(s.RecentMaintenance, run)
	s.RecentMaintenance = s.RecentMaintenance[max(0, len(s.RecentMaintenance)-recentRuns):]
	return true
}
