package finalize

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
)

// A request to cancel a backup is the annotation holdfast.io/cancel. What it does depends on how
// far the backup is:
//
//   - Not claimed yet: the runner that would claim it ends it by that one write, without the
//     bucket.
//   - Claimed, the bucket not opened, and nothing in it can be this backup's: it ends as Failed on
//     the object alone.
//   - From there to the mark: the step that runs is ended (Step.Cancellable), and the backup is
//     committed as Failed, with log and results that report it. Steps that are not cancellable run
//     to their end first.
//   - The mark holdfast.io/committing is written by compare-and-swap on the object that carries the
//     request. So one of them is first: with a request on it there is no mark, and with a mark on it
//     Requested finds no request.
//   - From the mark on the request is too late, also for a holder that takes over.
//   - A holder that does not stop in time loses the claim to queue-scheduler, which commits the
//     backup as Failed. Without the claim no mark can be written, and without the mark nothing but a
//     failure is committed.

// markCommit makes the commit begin: from now on a request to stop the backup comes too late. One
// that was there before is the error, a *mark.CancelError. A holder whose claim was taken, however long
// it slept, cannot write the mark, and so commits nothing but a failure.
func markCommit(ctx context.Context, s *State) error {
	failpoint.Hit("backup-runner/before-commit")
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	return s.Holder.BeginCommit(ctx)
}

// checkPresent is the check before a metadata file is created without a mark: a backup deleted under a
// live claim must not get a directory in the bucket any more.
func (s *State) checkPresent(ctx context.Context) error {
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	return s.Holder.Present(ctx)
}

// Stopped reports whether an error does not fail the backup: the process stops, or another holder
// continues.
func Stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, journal.ErrFenced) || errors.Is(err, claim.ErrLost)
}
