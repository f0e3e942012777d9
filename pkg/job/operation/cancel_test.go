package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Each operation that has not ended is cancelled once it is answered, within the limit, and is then one
// that failed with what came of it. An action that hangs delays no other one.
func TestOpenOperationsAreCancelledWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := sealedLog(t, "ended", "cancelled before", "stops", "refuses", "lost", "fails once", "fails", "hangs")
		require.NoError(t, l.Append(t.Context(),
			operation.Event{Operation: 0, Time: now, End: &operation.End{}}, operation.Event{Operation: 1, Time: now, Cancel: &operation.Cancel{Reason: "timed out"}}))
		ops := l.Operations()
		ops[7].Action = "b.io/hangs"
		ops[2].Home = &operation.Home{Instance: "one", Process: "1"}
		failed := false
		cancels := jobtest.Cancels{Answer: func(ctx context.Context, op action.Operation) (bool, error) {
			switch op.ID {
			case "refuses":
				return false, nil
			case "lost":
				return false, fmt.Errorf("asked: %w", operationhome.ErrGone)
			case "fails":
				return false, errors.New("no answer")
			case "fails once":
				if !failed {
					failed = true
					return false, errors.New("no answer")
				}
			case "hangs":
				<-ctx.Done()
				return false, ctx.Err()
			}
			return true, nil
		}}
		began := time.Now()
		require.NoError(t, cancels.Canceller().CancelOpen(t.Context(), l, &velerov1.Backup{}, "the backup failed: x"))
		require.Equal(t, operation.CancelLimit, time.Since(began))
		require.Subset(t, cancels.Calls(), []string{"stops", "stops forgotten", "refuses", "lost", "fails once", "fails", "hangs"})
		require.NotContains(t, cancels.Calls(), "ended")
		require.NotContains(t, cancels.Calls(), "cancelled before")
		require.True(t, l.Ended())
		want := []string{
			"", "it was cancelled at 2026-01-02T03:04:05Z and has not ended; it may still be running", "the cancel was acknowledged; it may still be running",
			"the cancel was refused; it may still be running", "the operation is lost: asked: " + operationhome.ErrGone.Error(),
			"the cancel was acknowledged; it may still be running", "the cancel was not acknowledged: no answer; it may still be running",
			"the cancel was not acknowledged: context deadline exceeded; it may still be running",
		}
		for i, s := range l.States() {
			if i > 0 {
				require.Equal(t, "the backup failed: x, "+want[i], s.Error)
			}
		}
		require.NoError(t, cancels.Canceller().CancelOpen(t.Context(), l, &velerov1.Backup{}, "again"), "nothing is open")
	})
}

// A process that ends while it cancels leaves the operations to its successor.
func TestCancelsEndWithTheProcess(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	_, l := sealedLog(t, "1")
	cancels := jobtest.Cancels{Answer: func(ctx context.Context, _ action.Operation) (bool, error) {
		stop()
		return false, ctx.Err()
	}}
	require.ErrorIs(t, cancels.Canceller().CancelOpen(ctx, l, &velerov1.Restore{}, "the restore failed: x"), context.Canceled)
	require.False(t, l.Ended())
}
