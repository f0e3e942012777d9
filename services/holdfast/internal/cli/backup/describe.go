package backup

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/queue"
)

// askTimeout is how long a description waits for an answer about the queue: a place in the queue is
// in the backup too, only older.
const askTimeout = 2 * time.Second

// Description is everything known about one backup, as -o prints it.
type Description struct {
	Backup *velerov1.Backup `json:"backup"`
	// Queue is where a backup that waits stands; absent when the queue cannot be asked.
	Queue     *queue.Explanation             `json:"queue,omitempty"`
	Deletions []velerov1.DeleteBackupRequest `json:"deletionRequests,omitempty"`
	*job.Files
}

// describer holds the flags that only describe of backups has.
type describer struct{ remote command.RemoteOptions }

// checkFlags reports a wrong flag; a queue that does not answer is no reason to show nothing.
func (d *describer) checkFlags(g *command.Global) error {
	conn, err := d.remote.Connect(g)
	if err != nil {
		return err
	}
	_ = conn.Close() // it was never dialled
	return nil
}

// describeBackup reads what there is about a backup besides its files.
func (d *describer) describeBackup(ctx context.Context, s *job.Session, b *velerov1.Backup, files *job.Files) (job.Description, error) {
	requests := &velerov1.DeleteBackupRequestList{}
	labels := client.MatchingLabels{velerov1.LabelBackupName: velerov1.LabelValue(b.Name), velerov1.LabelBackupUID: string(b.UID)}
	if err := s.Client.List(ctx, requests, client.InNamespace(s.Namespace), labels); err != nil {
		return job.Description{}, fmt.Errorf("list deletion requests of backup %q: %w", b.Name, err)
	}
	described := &Description{Backup: b, Deletions: requests.Items, Files: files}
	if b.Status.Phase.IsNew() || b.Status.Phase == velerov1.BackupPhaseQueued {
		described.Queue = d.queuePlace(ctx, s.Global, b)
	}
	return job.Description{
		Value: described, Queue: described.writeQueue, Spec: described.writeSpec, Status: described.writeStatus, End: described.writeDeletions,
	}, nil
}

// queuePlace is the place of the backup in the queue; nil when queue-scheduler cannot be reached, or
// serves others.
func (d *describer) queuePlace(ctx context.Context, g *command.Global, b *velerov1.Backup) *queue.Explanation {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	x, err := queue.Ask(ctx, g, d.remote, b.Name)
	if err != nil || x.UID != string(b.UID) {
		return nil
	}
	return x
}
