package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

const (
	progressEvery = time.Second
	recordEvery   = time.Second
	recordBatch   = 1000
	// lastRecords bounds the storing of what is left to record when a job ends.
	lastRecords = 5 * time.Second
)

// backgroundWriter reports progress and stores outcomes while objects are restored.
type backgroundWriter struct {
	*session
	recorder *outcome.Recorder
	records  *outcomeRecords
	reporter *waitReporter
}

// runWhile runs do while progress is reported and outcomes are stored, and waits for the last of
// both.
func (b *backgroundWriter) runWhile(ctx context.Context, do func(context.Context) error) error {
	group, working := panics.NewGroup(ctx)
	busy, idle := context.WithCancel(working)
	done := make(chan struct{})
	group.Go(func() error { return b.reportProgress(busy) })
	group.Go(func() error { return b.storeOutcomes(working, busy, done) })
	failure := panics.Catch(func() error { return do(working) })
	close(done)
	idle()
	switch err := group.Wait(); {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return panics.Raise(failure)
}

// reportProgress writes progress into the status once per second. Its error ends the job: the claim is
// lost, or the restore is being deleted.
func (b *backgroundWriter) reportProgress(ctx context.Context) error {
	ticker := b.cfg.Clock.NewTicker(progressEvery)
	defer ticker.Stop()
	var last outcome.Counts
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		counts := b.recorder.Counts()
		err := b.writeProgress(ctx, counts, last)
		switch {
		case err == nil:
			last = counts
		case errors.Is(err, claim.ErrLost):
			return err
		case ctx.Err() == nil:
			b.log.WarnContext(ctx, "Failed to write progress; will retry", "error", err)
		}
	}
}

// writeProgress writes counts into the status, and what is waited for, if they are others than those that
// were written last. What earlier holders did is not counted before it is replayed.
func (b *backgroundWriter) writeProgress(ctx context.Context, counts, last outcome.Counts) error {
	replayed := b.records.replayed.Load()
	var waits mark.Waits
	if replayed {
		waits = b.reporter.reportWaits()
	}
	_, err := b.held.Update(ctx, func(o *velerov1.Restore) error {
		if o.DeletionTimestamp != nil {
			return errDeleted
		}
		if !replayed || counts == last && b.reporter.isWritten(waits) {
			return kube.ErrSkip
		}
		setProgress(o, counts)
		return mark.SetWaits(o, waits)
	})
	if err == nil && replayed {
		b.reporter.noteWritten(waits)
	}
	return err
}

// storeOutcomes stores outcomes as they come, and the last ones when the work is done. Its error ends the
// job: another holder closed the records, or they could not be stored for too long, and no other
// holder could resume the restore.
func (b *backgroundWriter) storeOutcomes(ctx, busy context.Context, done <-chan struct{}) error {
	ticker := b.cfg.Clock.NewTicker(b.cfg.RecordEvery)
	defer ticker.Stop()
	// A record that is being stored when the work is done is not sent a second time.
	storing, stop := engine.WithGrace(busy, b.cfg.Clock, lastRecords, context.Canceled)
	defer stop()
	for {
		select {
		case <-busy.Done():
			if ctx.Err() != nil {
				b.storeLast(ctx) // the work may take long to return, and the process be killed meanwhile
				<-done
			}
			b.storeLast(ctx) // what the work recorded as it ended
			return nil
		case <-ticker.C():
		case <-b.recorder.Wanted():
		}
		if err := b.records.flushRecorder(storing, b.recorder); err != nil && busy.Err() == nil {
			return fmt.Errorf("record the outcomes: %w", err)
		}
	}
}

// storeLast stores what is left when the job ends here, whatever the reason: all of it has
// happened.
func (b *backgroundWriter) storeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(retrystore.Once(context.WithoutCancel(ctx)), lastRecords)
	defer cancel()
	if err := b.records.flushRecorder(ctx, b.recorder); err != nil {
		b.log.WarnContext(ctx, "Failed to record the last outcomes; the next holder of the restore does not know them", "error", err)
	}
}
