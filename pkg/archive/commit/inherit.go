package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Inherited returns what the metadata file has of a backup that another server stored and left
// unfinished, once it ends at now. stored is what the file had before. Its format and counts are
// that server's.
func Inherited(stored *velerov1.Backup, phase velerov1.BackupPhase, now time.Time) *velerov1.Backup {
	final := stored.DeepCopy()
	delete(final.Annotations, holdfast.AnnotationCommitting)
	final.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	final.Status.Phase = phase
	final.Status.QueuePosition = 0
	at := metav1.NewTime(now.Truncate(time.Second)) // the precision JSON keeps
	final.Status.CompletionTimestamp = &at
	return final
}

// Replace writes the terminal state of an inherited backup over the metadata file that the other
// server left. Unlike Commit it is not the moment that decides: the mark on the object is, and the
// caller has confirmed its claim.
func Replace(ctx context.Context, store objectstore.Store, final *velerov1.Backup) error {
	data, err := json.MarshalIndent(final, "", "    ")
	if err != nil {
		return fmt.Errorf("encode the backup: %w", err)
	}
	if err := objectstore.PutBytes(ctx, store, layout.BackupMetadata(final.Name), data); err != nil {
		return fmt.Errorf("end the backup: %w", err)
	}
	return nil
}
