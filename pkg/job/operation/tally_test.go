package operation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// names is what the identifiers of an operation take in these tests.
const names = 4 << 10

// begin counts an operation as its call does.
func begin(tally *operation.Tally, op *operation.Operation) (listed bool, err error) {
	known := *op
	known.ID, known.Home, known.PostOperation = "", nil, nil
	r, err := tally.Reserve(&known, names)
	if err != nil {
		return false, err
	}
	return r.Begun(op)
}

// items are post-operation items in n namespaces of the longest name, so that their text is many
// times what they take in memory.
func items(n, namespaces int) (out []operation.Resource) {
	for i := range n {
		namespace := fmt.Sprintf("%s%05d", strings.Repeat("n", 58), i%namespaces)
		out = append(out, operation.Resource{Group: strings.Repeat("g", 100), Resource: "volumes", Namespace: namespace, Name: fmt.Sprint(i)})
	}
	return out
}

// An operation of which no list takes the items is counted without them, and leaves nothing of them.
func TestTheItemsOfAnOperationAreBounded(t *testing.T) {
	var tally operation.Tally
	for i := range 200 {
		op := many(1).Operations[0]
		op.PostOperation = items(4000+i, 3000)
		listed, err := begin(&tally, &op)
		require.True(t, listed)
		require.ErrorIs(t, err, document.ErrTooLarge)
		require.NotErrorIs(t, err, operation.ErrFull)
		require.ErrorContains(t, err, fmt.Sprintf("a list takes 524288 bytes of one operation, and this one has %d post-operation items", 4000+i))
		require.Empty(t, op.PostOperation)
	}
	op := many(1).Operations[0]
	op.PostOperation = items(1500, 1500)
	listed, err := begin(&tally, &op)
	require.True(t, listed)
	require.NoError(t, err)
	require.Len(t, op.PostOperation, 1500)
}

// An operation whose items are refused leaves none of their texts: they count with the next one.
func TestWhatIsRefusedIsNotCounted(t *testing.T) {
	var tally operation.Tally
	tally.Add(&operation.Operation{ID: strings.Repeat("x", 24<<20-150<<10)})
	for range 3 {
		op := many(1).Operations[0]
		op.PostOperation = items(1200, 1200)
		listed, err := begin(&tally, &op)
		require.True(t, listed)
		require.ErrorIs(t, err, operation.ErrFull)
	}
}

// A call that begins nothing costs no place, and one that is under way has one.
func TestPlacesAreReserved(t *testing.T) {
	var tally operation.Tally
	large := operation.Operation{ID: strings.Repeat("x", 20<<20)}
	tally.Add(&large)
	op := many(1).Operations[0]
	var reserved []*operation.Reserved
	for {
		r, err := tally.Reserve(&op, names)
		if err != nil {
			require.ErrorIs(t, err, operation.ErrFull)
			break
		}
		reserved = append(reserved, r)
		require.Less(t, len(reserved), 4096)
	}
	require.Greater(t, len(reserved), 256)
	reserved[0].Release()
	reserved[0].Release()
	again, err := tally.Reserve(&op, names)
	require.NoError(t, err)
	_, err = tally.Reserve(&op, names)
	require.ErrorIs(t, err, operation.ErrFull, "it was released once")
	longest := op
	longest.ID = strings.Repeat("y", names)
	listed, err := again.Begun(&longest)
	require.NoError(t, err)
	require.True(t, listed)

	tally.Add(&large)
	none, err := tally.Reserve(&op, names)
	require.ErrorIs(t, err, operation.ErrFull, "what was begun before is counted beyond the limit")
	listed, err = none.Begun(&op)
	require.ErrorIs(t, err, operation.ErrFull)
	require.False(t, listed)
}
