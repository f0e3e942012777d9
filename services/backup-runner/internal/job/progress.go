package job

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// progressPeriod is the shortest time between two progress patches.
const progressPeriod = time.Second

// progressReporter writes the progress of a backup into its object.
type progressReporter struct {
	held  *Held
	clock clock.WithTicker
}

// startReporting patches the progress into the backup while it changes; the returned function ends that and
// waits for the last patch.
func (r *progressReporter) startReporting(ctx context.Context, p *collect.Progress) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	var group panics.Group
	group.Go(func() error {
		ticker := r.clock.NewTicker(progressPeriod)
		defer ticker.Stop()
		var last collect.Counts
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			}
			if now := p.Read(); now != last && r.patchProgress(ctx, now) {
				last = now
			}
		}
	})
	return func() {
		end()
		_ = group.Wait() // it returns no error
	}
}

// patchProgress is best effort: the next one will be newer.
func (r *progressReporter) patchProgress(ctx context.Context, c collect.Counts) bool {
	_, err := r.held.Update(ctx, func(b *velerov1.Backup) error {
		if b.Status.Phase != velerov1.BackupPhaseInProgress {
			return kube.ErrSkip
		}
		b.Status.Progress = &velerov1.BackupProgress{TotalItems: c.Total, ItemsBackedUp: c.Items}
		b.Status.Warnings, b.Status.Errors = c.Warnings, c.Errors
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.held.Log.DebugContext(ctx, "Failed to write progress; will retry", "error", err)
	}
	return err == nil
}
