package backup

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// requestDeletion requests the deletion of a backup with everything stored for it.
func requestDeletion(ctx context.Context, s *job.Session, b *velerov1.Backup, wait bool) error {
	request := &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    b.Namespace,
			GenerateName: b.Name + "-",
			Labels: map[string]string{
				velerov1.LabelBackupName: velerov1.LabelValue(b.Name),
				velerov1.LabelBackupUID:  string(b.UID),
			},
		},
		Spec: velerov1.DeleteBackupRequestSpec{BackupName: b.Name},
	}
	if err := s.Client.Create(ctx, request); err != nil {
		return fmt.Errorf("request deletion of backup %q: %w", b.Name, err)
	}
	s.Printf("Deletion of backup %q was requested.\n", b.Name)
	if !wait {
		return nil
	}
	return awaitDeletion(ctx, s, b, request)
}

// awaitDeletion waits until the request is processed. A successful deletion removes the request too, so
// its absence and the backup's mean success.
func awaitDeletion(ctx context.Context, s *job.Session, b *velerov1.Backup, request *velerov1.DeleteBackupRequest) error {
	progress := command.NewProgress(s.Global)
	err := command.WaitUntil(ctx, s.Client, s.Global.Clock, request, func() (bool, error) {
		progress.Show("Deletion "+string(phaseOr(request.Status.Phase)), 0, 0)
		return request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed, nil
	})
	progress.End()
	switch {
	case ctx.Err() != nil:
		return &command.ExitError{Code: command.CodeInterrupted, Err: fmt.Errorf(
			"no longer waiting; the deletion of backup %q continues: `holdfast backup get %s` shows whether it is gone", b.Name, b.Name)}
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	if request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed && len(request.Status.Errors) > 0 { // else they are of an earlier try
		return fmt.Errorf("delete backup %q: %s", b.Name, strings.Join(request.Status.Errors, "; "))
	}
	now := &velerov1.Backup{}
	switch err := s.Client.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, now); {
	case apierrors.IsNotFound(err), err == nil && now.UID != b.UID:
		s.Printf("Backup %q is gone.\n", b.Name)
		return nil
	case err != nil:
		return fmt.Errorf("check backup %q: %w", b.Name, err)
	default:
		return fmt.Errorf("backup %q is still there in phase %s", b.Name, job.ShownPhase(now, now.Status.Phase))
	}
}

func phaseOr(phase velerov1.DeleteBackupRequestPhase) velerov1.DeleteBackupRequestPhase {
	if phase == "" {
		return velerov1.DeleteBackupRequestPhaseNew
	}
	return phase
}
