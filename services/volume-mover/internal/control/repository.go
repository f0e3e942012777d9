package control

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// maintenanceFrequency is Velero's default for kopia.
const maintenanceFrequency = time.Hour

// noteRepository keeps the BackupRepository of a request in line with what its mover found: Ready if it
// opened the repository, NotReady with its message if it could not.
func (c *Controller) noteRepository(ctx context.Context, v view, result *outcome.Result) error {
	phase, message := velerov1.BackupRepositoryPhaseReady, ""
	switch {
	case result.Unopened:
		phase, message = velerov1.BackupRepositoryPhaseNotReady, result.Message
	case result.Phase != outcome.Completed && result.Phase != outcome.PartiallyFailed:
		return nil // it says nothing about the repository
	}
	r := &velerov1.BackupRepository{ObjectMeta: metav1.ObjectMeta{Namespace: v.GetNamespace(), Name: fmt.Sprintf("%s-%s-%s", v.namespace, v.location, uploaderKopia)}}
	err := kube.Update(ctx, c.Reader, c.Client, r, func(fresh *velerov1.BackupRepository) error {
		fresh.Status.Phase, fresh.Status.Message = phase, message
		return nil
	})
	if !apierrors.IsNotFound(err) {
		return err
	}
	r = &velerov1.BackupRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: map[string]string{
			velerov1.LabelVolumeNamespace: velerov1.LabelValue(v.namespace), velerov1.LabelStorageLocation: velerov1.LabelValue(v.location),
			velerov1.LabelRepositoryType: string(uploaderKopia),
		}},
		Spec: velerov1.BackupRepositorySpec{
			VolumeNamespace: v.namespace, BackupStorageLocation: v.location, RepositoryType: uploaderKopia,
			MaintenanceFrequency: metav1.Duration{Duration: cmp.Or(c.MaintenanceInterval, maintenanceFrequency)},
		},
		Status: velerov1.BackupRepositoryStatus{Phase: phase, Message: message},
	}
	if err := c.Client.Create(ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create BackupRepository %s: %w", r.Name, err)
	}
	return nil
}
