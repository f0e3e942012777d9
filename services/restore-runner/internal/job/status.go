package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	progressEvery = time.Second
	recordEvery   = time.Second
	recordBatch   = 1000
	// lastRecords bounds the storing of what is left to record when a job ends.
	lastRecords = 5 * time.Second
)

// every calls do at each tick until done is closed or ctx ends.
func (j *job) every(ctx context.Context, d time.Duration, done <-chan struct{}, do func(context.Context)) {
	ticker := j.cfg.Clock.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-ticker.C():
			do(ctx)
		}
	}
}

// report writes progress into the status once per second, and ends the job when the claim is lost or the restore is being
// deleted.
func (j *job) report(ctx context.Context, done <-chan struct{}, end context.CancelCauseFunc) {
	var last outcome.Counts
	j.every(ctx, progressEvery, done, func(ctx context.Context) {
		counts := j.recorder.Counts()
		err := j.update(ctx, func(o *velerov1.Restore) error {
			if o.DeletionTimestamp != nil {
				return errDeleted
			}
			if counts == last || !j.ready.Load() {
				return kube.ErrSkip // what earlier holders did is not counted before it is replayed
			}
			progress(o, counts)
			return nil
		})
		switch {
		case err == nil:
			last = counts
		case errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted), errors.Is(err, kube.ErrReplaced):
			end(err)
		case ctx.Err() == nil:
			j.log.Warn("progress not written", "error", err)
		}
	})
}

func progress(o *velerov1.Restore, counts outcome.Counts) {
	o.Status.Progress = &velerov1.RestoreProgress{TotalItems: counts.Total, ItemsRestored: counts.Done}
	o.Status.Warnings, o.Status.Errors = counts.Warnings, counts.Errors
	if o.Status.HookStatus == nil {
		o.Status.HookStatus = &velerov1.HookStatus{} // Velero 1.18 writes it also when no hook ran
	}
}

// update changes the restore while it is ours.
func (j *job) update(ctx context.Context, change func(*velerov1.Restore) error) error {
	return kube.Update(ctx, j.cfg.Reader, j.cfg.Client, j.object(j.restore.Name, j.restore.UID), func(o *velerov1.Restore) error {
		if err := claim.Check(o, j.mine); err != nil {
			return err
		}
		return change(o)
	})
}

// finish writes the terminal phase, as it was decided. The write is repeated while the API server is away: giving up would
// only let another holder come to the same end later.
func (j *job) finish(ctx context.Context, end *outcome.Finished) error {
	phase, counts := end.Phase, end.Counts
	final, sent := (*velerov1.Restore)(nil), false
	failpoint.Hit("restore-runner/before-terminal-write")
	err := j.retry(ctx, "write the terminal phase", func() error {
		return j.update(ctx, func(o *velerov1.Restore) error {
			if final = o; o.Status.Phase.Terminal() {
				if sent && o.Status.Phase == phase {
					return kube.ErrSkip // written by an attempt whose answer was lost
				}
				return errNothing
			}
			sent = true
			cancel.Unmark(o)
			o.Status.Phase = phase
			at := metav1.NewTime(end.At())
			o.Status.CompletionTimestamp = &at
			progress(o, counts)
			o.Status.FailureReason = end.Reason
			return nil
		})
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write phase %s: %w", phase, err)
	}
	failpoint.Hit("restore-runner/terminal-written")
	j.log.Info("restore ended", "phase", phase, "items", counts.Done, "warnings", counts.Warnings, "errors", counts.Errors)
	j.cfg.Metrics.End(j.schedule, phase)
	if j.recorder != nil {
		j.cfg.Metrics.Items(j.recorder.ByAction())
	}
	j.cfg.Ended(ctx, final)
	return nil
}
