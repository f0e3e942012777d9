package commit

import (
	"context"
	"errors"
	"os"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Failure is why a backup failed.
type Failure struct {
	// Reason is the failureReason.
	Reason string
	// Time is when that was found, Source what found it ("holdfast/<service>").
	Time   time.Time
	Source string
	// Notes are further lines of the log.
	Notes []joblog.Entry
}

// Plan returns what publish needs to know of a backup besides its parts; cluster is the UID of the
// cluster's namespace kube-system.
func Plan(b *velerov1.Backup, cluster string) assembly.Plan {
	start := b.CreationTimestamp.Time
	if b.Status.StartTimestamp != nil {
		start = b.Status.StartTimestamp.Time
	}
	return assembly.Plan{
		Backup: b.Name, UID: string(b.UID), ModTime: start,
		Header:   manifest.Header{Backup: b.Name, UID: string(b.UID), Cluster: cluster, StartTime: start},
		LogField: "backup", LogValue: b.Namespace + "/" + b.Name,
	}
}

// Explain leaves a log and results that say why the backup failed. dir is a directory for files on
// their way to the bucket. What is there already stays.
func Explain(ctx context.Context, store objectstore.Store, dir string, b *velerov1.Backup, cluster string, failure Failure) error {
	plan := Plan(b, cluster)
	plan.Notes = []joblog.Entry{{Time: failure.Time, Level: joblog.Error, Message: "Backup failed", Err: failure.Reason, Source: failure.Source}}
	plan.Notes = append(plan.Notes, failure.Notes...)
	merged, err := assembly.Merge(ctx, store, plan, dir)
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range []string{merged.Manifest.Path, merged.ResourceList.Path, merged.Results.Path, merged.Log.Path} {
			_ = os.Remove(f) // best effort: the job's directory is removed at its end
		}
	}()
	_, logErr := assembly.Create(ctx, store, layout.BackupLog(b.Name), merged.Log)
	_, resultsErr := assembly.Create(ctx, store, layout.BackupResults(b.Name), merged.Results)
	return errors.Join(logErr, resultsErr)
}
