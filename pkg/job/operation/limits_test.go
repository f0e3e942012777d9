package operation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

func TestOperationsOfAJobAreCounted(t *testing.T) {
	var c operation.Counter
	for range operation.MaxOperations {
		require.NoError(t, c.ReserveOperation())
	}
	require.ErrorIs(t, c.ReserveOperation(), operation.ErrFull)
	require.ErrorIs(t, operation.ErrFull, journal.ErrDocumentTooLarge)
	c.ReleaseOperation()
	require.NoError(t, c.ReserveOperation())
	require.ErrorIs(t, c.ReserveOperation(), operation.ErrFull)
	c.AddOperation(0) // of an earlier holder
	c.ReleaseOperation()
	require.ErrorIs(t, c.ReserveOperation(), operation.ErrFull)
}

func TestPostOperationItemsAreCounted(t *testing.T) {
	var c operation.Counter
	err := c.AddPostItems(operation.MaxPostItems + 1)
	require.ErrorIs(t, err, journal.ErrDocumentTooLarge)
	require.EqualError(t, err, "too large: the operation has 1001 post-operation items, at most 1000 are possible")
	c.AddOperation(operation.MaxPostItems)
	for range operation.MaxJobPostItems/operation.MaxPostItems - 1 {
		require.NoError(t, c.AddPostItems(operation.MaxPostItems))
	}
	err = c.AddPostItems(1)
	require.ErrorIs(t, err, journal.ErrDocumentTooLarge)
	require.EqualError(t, err, "too large: the operations of the job have more than 100000 post-operation items")
	require.NoError(t, c.AddPostItems(0))
}
