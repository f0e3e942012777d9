//go:build !race

// What is at the limits here takes minutes under the race detector, and has one goroutine.

package operation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// What is counted while operations are begun is sealed, whatever of it is the first to be too much.
func TestWhatIsCountedIsSealed(t *testing.T) {
	all := many(20_000).Operations
	for name, c := range map[string]struct {
		before int // operations of half a MiB
		least  int
		change func(op *operation.Operation)
	}{
		"many operations": {38, 9_000, func(*operation.Operation) {}},
		"long texts":      {0, 160, func(op *operation.Operation) { op.PostOperation = items(1200, 1) }},
		"many namespaces": {38, 20, func(op *operation.Operation) { op.PostOperation = items(1200, 1200) }},
		"long names":      {0, 2_000, func(op *operation.Operation) { op.ID += strings.Repeat("\x01", names-100) }},
	} {
		t.Run(name, func(t *testing.T) {
			var tally operation.Tally
			begun, store := operation.List{Job: job, Epoch: 1}, memstore.New()
			for range c.before { // most of what a list takes in memory
				op := operation.Operation{ID: strings.Repeat("x", 500<<10)}
				tally.Add(&op)
				begun.Operations = append(begun.Operations, op)
			}
			for i := range all {
				op := all[i]
				c.change(&op)
				if listed, err := begin(&tally, &op); err != nil {
					require.False(t, listed && op.PostOperation != nil)
					require.ErrorIs(t, err, operation.ErrFull)
					require.ErrorContains(t, err, "50331648 bytes of text and 25165824 of memory")
					break
				}
				begun.Operations = append(begun.Operations, op)
			}
			require.Greater(t, len(begun.Operations), c.least)
			require.Less(t, len(begun.Operations), len(all))
			_, err := operation.Seal(t.Context(), store, begun)
			require.NoError(t, err)
			require.Len(t, open(t, store).Operations(), len(begun.Operations))
		})
	}
}

// The operations of a failed job were not cancelled where their list was too large.
func TestAListOfOperationsToEndIsSealedAsFarAsItFits(t *testing.T) {
	store, l := memstore.New(), many(100)
	for i := range l.Operations {
		l.Operations[i].PostOperation = items(5000, 1)
	}
	l.Reason = strings.Repeat("é", 1<<20)
	sealed, left, err := operation.SealEnding(t.Context(), store, l)
	require.NoError(t, err)
	require.Zero(t, left)
	require.Len(t, sealed.Operations, 100)
	require.Len(t, l.Operations[0].PostOperation, 5000, "they are the caller's")
	log := open(t, store)
	require.Len(t, log.Operations(), 100)
	require.Empty(t, log.Operations()[7].PostOperation)
	require.Equal(t, many(100).Operations[7].ID, log.Operations()[7].ID)
	require.Equal(t, strings.Repeat("é", 32<<10)+"...", log.Reason())

	store = memstore.New()
	l = many(60_000)
	l.Reason = "the backup failed"
	sealed, left, err = operation.SealEnding(t.Context(), store, l)
	require.NoError(t, err)
	require.Greater(t, len(sealed.Operations), 40_000)
	require.Equal(t, 60_000, left+len(sealed.Operations))
	log = open(t, store)
	require.Len(t, log.Operations(), len(sealed.Operations))
	require.Equal(t, fmt.Sprintf("the backup failed; %d operations have no place in the list and may go on", left), log.Reason())
}

// What is sealed is read: a list of which the text, but not the content, was within the limits was
// written and then damaged for every reader.
func TestTheLongestListIsRead(t *testing.T) {
	fits, tooMany := 30_000, 60_000
	_, err := operation.Seal(t.Context(), memstore.New(), many(tooMany))
	require.ErrorIs(t, err, document.ErrTooLarge)
	for tooMany-fits > 2000 {
		n := (fits + tooMany) / 2
		store := memstore.New()
		_, err := operation.Seal(t.Context(), store, many(n))
		if err != nil {
			require.ErrorIs(t, err, document.ErrTooLarge)
			require.Empty(t, store.Keys())
			tooMany = n
			continue
		}
		fits = n
	}
	t.Logf("a list has %d operations at most", fits)
	store := memstore.New()
	_, err = operation.Seal(t.Context(), store, many(fits))
	require.NoError(t, err)
	log, kept := alive(func() *operation.Log { return open(t, store) })
	require.Len(t, log.Operations(), fits)
	require.Equal(t, many(fits).Operations[fits-1].ID, log.Operations()[fits-1].ID)
	require.Less(t, kept, uint64(32<<20))
}
