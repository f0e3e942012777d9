package queue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// asked counts how often the namespaces were listed.
type asked struct {
	*rules
	times int
}

func (a *asked) Namespaces(context.Context) (live, excluded []string, err error) {
	a.times++
	return nil, nil, errDown
}

// While namespaces cannot be listed a pass tries once for all jobs that wait, reports that once and
// starts no job.
func TestAnOutageIsAskedAboutOnceAPass(t *testing.T) {
	entries, backups := newCrowd(500)
	a := &asked{rules: &rules{}}
	s := crowdScheduler(a)
	err := s.Admit(t.Context(), queue.ViewOf(crowdLimits, entries, backups))
	require.ErrorIs(t, err, errDown)
	require.Less(t, len(err.Error()), 200)
	require.Equal(t, 1, a.times)
	for _, b := range backups {
		require.Equal(t, velerov1.BackupPhaseQueued, b.Status.Phase)
	}
}

// blocks counts how often numbers were taken.
type blocks struct {
	*ledger.Ledger
	taken []int
}

func (b *blocks) NextSequences(ctx context.Context, n int, above int64) (int64, error) {
	b.taken = append(b.taken, n)
	return b.Ledger.NextSequences(ctx, n, above)
}

// Passes that find many new backups take their numbers in few writes, and leave time for those that
// may start.
func TestNumbersComeInBlocks(t *testing.T) {
	const total = 600
	c := &store{}
	for i := range total {
		b := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b%03d", i), i)}
		b.Spec.IncludedNamespaces = []string{"n1"}
		require.NoError(t, c.Create(t.Context(), b))
	}
	book := &blocks{Ledger: ledger.New(c, c, "velero")}
	s := newQueue(c, &crowdLimits, withLedger(book))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []int{250}, book.taken)
	entries, err := book.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 1, "the first one does not wait for the last to be queued")
	for range 3 {
		require.NoError(t, s.Pass(t.Context()))
	}
	require.Equal(t, []int{250, 250, 100}, book.taken)

	list := &velerov1.BackupList{}
	require.NoError(t, c.List(t.Context(), list))
	for i := range list.Items {
		require.Equal(t, i+1, sequenceOf(&list.Items[i]), "the order is that of creation")
	}
}
