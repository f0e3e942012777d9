package job

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
)

// progressPeriod is the shortest time between two progress patches.
const progressPeriod = time.Second

// report patches the progress into the backup while it changes; the returned
// function ends that and waits for the last patch.
func (j *execution) report(ctx context.Context, p *collect.Progress) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		ticker := j.Clock.NewTicker(progressPeriod)
		defer ticker.Stop()
		var last collect.Counts
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
			if now := p.Read(); now != last && j.patchProgress(ctx, now) {
				last = now
			}
		}
	})
	return func() {
		end()
		group.Wait()
	}
}

// patchProgress is best effort: the next one will be newer.
func (j *execution) patchProgress(ctx context.Context, c collect.Counts) bool {
	b := j.backup.DeepCopy()
	err := kube.Update(ctx, j.Reader, j.Client, b, func(b *velerov1.Backup) error {
		if err := claim.Check(b, j.mine); err != nil {
			return err
		}
		if b.Status.Phase != velerov1.BackupPhaseInProgress {
			return kube.ErrSkip
		}
		b.Status.Progress = &velerov1.BackupProgress{TotalItems: c.Total, ItemsBackedUp: c.Items}
		b.Status.Warnings, b.Status.Errors = c.Warnings, c.Errors
		return nil
	})
	if err != nil && ctx.Err() == nil {
		j.log.DebugContext(ctx, "progress not written", "error", err)
	}
	return err == nil
}

// failed is the end of a backup that nothing in the bucket stands for.
func (j *execution) failed(reason string) *velerov1.Backup {
	b := j.backup.DeepCopy()
	j.fail(b, reason)
	return b
}

func (j *execution) fail(b *velerov1.Backup, reason string) {
	now := metav1.NewTime(j.Clock.Now().Truncate(time.Second))
	b.Status.Phase, b.Status.FailureReason, b.Status.CompletionTimestamp = velerov1.BackupPhaseFailed, reason, &now
}

// end settles the backup as Failed without a word in the bucket.
func (j *execution) end(ctx context.Context, reason string) error {
	return j.settle(ctx, j.failed(reason), finish.Published{})
}

// settle copies the final status to the object. Until that succeeded the job is
// not over; a lost claim ends it for this process.
func (j *execution) settle(ctx context.Context, final *velerov1.Backup, p finish.Published) error {
	failpoint.Hit("backup-runner/before-terminal")
	err := j.retry(ctx, "write the final status", func() error {
		return kube.Update(ctx, j.Reader, j.Client, j.backup, func(b *velerov1.Backup) error {
			// First, also where the end is written already: whoever took over has counted and announced it.
			if err := claim.Check(b, j.mine); err != nil {
				return err
			}
			if b.Status.Phase.Terminal() {
				return kube.ErrSkip // a terminal phase never changes
			}
			cancel.Unmark(b)
			expiration := b.Status.Expiration
			b.Status = *final.Status.DeepCopy()
			if b.Status.Expiration == nil {
				b.Status.Expiration = expiration
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	failpoint.Hit("backup-runner/terminal-written")
	j.finished(ctx, p)
	failpoint.Hit("backup-runner/event-published")
	return nil
}

// finished tells of the terminal phase that was written.
func (j *execution) finished(ctx context.Context, p finish.Published) {
	j.Metrics.Finished(j.backup, p.TarballSize)
	j.publish(ctx)
	j.log.InfoContext(ctx, "backup finished", "phase", j.backup.Status.Phase, "items", p.Items,
		"warnings", j.backup.Status.Warnings, "errors", j.backup.Status.Errors, "reason", j.backup.Status.FailureReason)
}

// publish tells others about the phase; those who miss it reconcile.
func (j *execution) publish(ctx context.Context) {
	err := j.Events.PublishEvent(ctx, &eventv1.Event{
		Kind: "Backup", Namespace: j.backup.Namespace, Name: j.backup.Name, Uid: string(j.backup.UID),
		Phase: string(j.backup.Status.Phase), Time: timestamppb.New(j.Clock.Now()),
	})
	if err != nil {
		j.log.WarnContext(ctx, "event not published", "phase", j.backup.Status.Phase, "error", err)
	}
}

// retry repeats fn while it fails because the API is away, until ctx ends.
func (j *execution) retry(ctx context.Context, what string, fn func() error) error {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 10 * time.Second}
	for {
		err := fn()
		if err == nil || !kube.IsTransient(err) || ctx.Err() != nil {
			return err
		}
		j.log.WarnContext(ctx, "call failed, trying again", "call", what, "error", err)
		timer := j.Clock.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}
