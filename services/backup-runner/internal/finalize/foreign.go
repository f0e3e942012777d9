package finalize

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// endForeign rewrites the metadata file that another server left with a phase that is not terminal,
// which hides the backup from synchronisation. With its tarball the backup is PartiallyFailed, and
// can be restored; all its other files stay as they are, operations included. A later holder follows
// the phase of the file.
func endForeign(ctx context.Context, s *State) error {
	complete, err := objectstore.Exists(ctx, s.Store, layout.BackupTarball(s.Backup.Name))
	if err != nil {
		return err
	}
	final := s.Stored.DeepCopy()
	final.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	status := &final.Status
	status.Phase, status.FailureReason, status.QueuePosition = velerov1.BackupPhaseFailed, mark.ForeignReason, 0
	if complete {
		status.Phase = velerov1.BackupPhasePartiallyFailed
	}
	status.Errors++
	at := metav1.NewTime(s.Clock.Now().Truncate(time.Second)) // the precision JSON keeps
	status.CompletionTimestamp = &at
	data, err := json.MarshalIndent(final, "", "    ")
	if err != nil {
		return fmt.Errorf("encode the backup: %w", err)
	}
	if err := s.checkPresent(ctx); err != nil { // else synchronisation brings a deleted backup back
		return err
	}
	if err := objectstore.PutBytes(ctx, s.Store, layout.BackupMetadata(final.Name), data); err != nil {
		return fmt.Errorf("end the backup: %w", err)
	}
	s.Final = final
	return nil
}
