package finalize_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// begunBy is the outcome of a call that began an operation which names so many items.
func begunBy(name string, items int) checkpoint.Outcome {
	out := checkpoint.Outcome{
		Call:      checkpoint.Call{Action: "a.io/begins", Object: checkpoint.Object{Kind: "ConfigMap", Namespace: "a", Name: name}},
		Operation: "op of " + name, Begun: &checkpoint.Begun{Kind: "BackupItemActionV2", Resource: "configmaps", Time: time.Unix(1700000000, 0).UTC()},
	}
	for range items {
		out.Begun.PostOperation = append(out.Begun.PostOperation, checkpoint.Item{Resource: "configmaps", Namespace: "a", Name: "made"})
	}
	return out
}

// failing runs a backup with these outcomes, whose list of operations cannot be sealed, until it waits
// for them as one that fails.
func failing(t *testing.T, log *bytes.Buffer, outcomes ...checkpoint.Outcome) (*finalize.State, *finalize.WaitingError) {
	t.Helper()
	s := state(t, bucket(t, []checkpoint.Record{{Outcomes: outcomes}}), log)
	s.Collect = func(context.Context) (checkpoint.Composition, error) {
		return checkpoint.Composition{Backup: "b", UID: "u", Epoch: 1, Operations: checkpoint.Operations(outcomes)}, nil
	}
	s.Cause = s.Run(t.Context(), finalize.Backup())
	require.ErrorIs(t, s.Cause, document.ErrTooLarge)
	var waiting *finalize.WaitingError
	require.ErrorAs(t, s.Run(t.Context(), finalize.Failure()), &waiting, log.String())
	return s, waiting
}

// The operations of a backup that failed since its list of them was too large went on: for the same
// reason they were taken as not known.
func TestOperationsThatNoListTakesAreCancelled(t *testing.T) {
	var text bytes.Buffer
	s, waiting := failing(t, &text, begunBy("one", 20_000), begunBy("two", 1))
	require.Equal(t, []int{2, 0, 0}, []int{waiting.Attempted, waiting.Completed, waiting.Failed})
	require.Nil(t, waiting.Composition)
	require.NotContains(t, text.String(), "not cancelled")
	log, err := operation.Open(t.Context(), s.Store, operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"})
	require.NoError(t, err)
	require.Equal(t, "op of one", log.Operations()[0].ID)
	require.Contains(t, log.Reason(), "the backup failed: write list of operations of Backup b")
}

// Of more than one list takes as many are cancelled as it takes, and the log says how many are not.
func TestMoreOperationsThanAListTakesAreCancelledAsFarAsItDoes(t *testing.T) {
	var outcomes []checkpoint.Outcome
	for i := range 60 {
		out := begunBy(fmt.Sprint(i), 0)
		out.Operation += strings.Repeat("x", 500<<10)
		outcomes = append(outcomes, out)
	}
	var text bytes.Buffer
	s, waiting := failing(t, &text, outcomes...)
	require.Greater(t, waiting.Attempted, 40)
	require.Less(t, waiting.Attempted, 60)
	require.Contains(t, text.String(), fmt.Sprintf("operations=%d", 60-waiting.Attempted))
	require.Len(t, s.Operations.Operations(), waiting.Attempted)
}
