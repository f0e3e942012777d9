package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	progressEvery = time.Second
	recordEvery   = 2 * time.Second
	// lastRecords bounds the storing of what is left to record when a job ends.
	lastRecords = 10 * time.Second
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
func (j *job) report(ctx context.Context, done <-chan struct{}, cancel context.CancelCauseFunc) {
	var last outcome.Counts
	j.every(ctx, progressEvery, done, func(ctx context.Context) {
		counts := j.recorder.Counts()
		err := j.update(ctx, func(o *velerov1.Restore) error {
			if o.DeletionTimestamp != nil {
				return errDeleted
			}
			if counts == last {
				return kube.ErrSkip
			}
			progress(o, counts)
			return nil
		})
		switch {
		case err == nil:
			last = counts
		case errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted), errors.Is(err, kube.ErrReplaced):
			cancel(err)
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

// recordStore prefers the bucket, and keeps to the work directory once the bucket turned out to be read-only.
type recordStore struct {
	bucket   *outcome.Bucket
	dir      *outcome.Dir
	readOnly bool
}

// Add implements outcome.Store.
func (s *recordStore) Add(ctx context.Context, data []byte) error {
	if !s.readOnly {
		err := s.bucket.Add(ctx, data)
		if !errors.Is(err, objectstore.ErrReadOnly) {
			return err
		}
		s.readOnly = true
	}
	return s.dir.Add(ctx, data)
}

// record stores outcomes as they come, and the last ones when the work is done.
func (j *job) record(ctx context.Context, done <-chan struct{}, store *recordStore) {
	flush := func(ctx context.Context) {
		if err := j.recorder.Flush(ctx, store); err != nil && ctx.Err() == nil {
			j.log.Warn("outcomes not recorded", "error", err)
		}
	}
	j.every(ctx, recordEvery, done, flush)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRecords)
	defer cancel()
	flush(last)
	if store.readOnly {
		j.log.Warn("the location is read-only: a takeover of this restore would start from its plan", "restore", j.restore.Name)
	}
}

// finish writes the terminal phase: Failed with a reason, or what the counts say. The write is repeated while the API server
// is away: giving up would carry out the whole restore once more.
func (j *job) finish(ctx context.Context, failure error) error {
	var counts outcome.Counts
	if j.recorder != nil {
		counts = j.recorder.Counts()
	}
	phase := velerov1.RestorePhaseCompleted
	switch {
	case failure != nil:
		phase = velerov1.RestorePhaseFailed
	case counts.Errors > 0:
		phase = velerov1.RestorePhasePartiallyFailed
	}
	final, sent := (*velerov1.Restore)(nil), false
	err := j.retry(ctx, "write the terminal phase", func() error {
		return j.update(ctx, func(o *velerov1.Restore) error {
			if final = o; o.Status.Phase.Terminal() {
				if sent && o.Status.Phase == phase {
					return kube.ErrSkip // written by an attempt whose answer was lost
				}
				return errNothing
			}
			sent = true
			o.Status.Phase = phase
			o.Status.CompletionTimestamp = j.now()
			progress(o, counts)
			if failure != nil {
				o.Status.FailureReason = failure.Error()
			}
			return nil
		})
	})
	if errors.Is(err, claim.ErrLost) || errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write phase %s: %w", phase, err)
	}
	j.log.Info("restore ended", "phase", phase, "items", counts.Done, "warnings", counts.Warnings, "errors", counts.Errors)
	j.cfg.Metrics.End(j.schedule, phase)
	if j.recorder != nil {
		j.cfg.Metrics.Items(j.recorder.ByAction())
	}
	j.cfg.Ended(ctx, final)
	return nil
}
