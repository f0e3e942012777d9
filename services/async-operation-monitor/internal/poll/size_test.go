package poll_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Operations with many items to store again took no more room than others.
func TestTheMemoryOfAJobIsCounted(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		for _, key := range b.store.Keys() {
			require.NoError(b, b.store.Delete(b.Context(), key))
		}
		list := operation.List{Job: theJob, Epoch: 1, Operations: []operation.Operation{{Action: "vendor.io/a", ID: "one", Created: time.Now()}}}
		b.seal(list)
		small := b.start().job.Bytes()
		require.Greater(b, small, 200)
		require.Less(b, small, 4<<10)
		for _, key := range b.store.Keys() {
			require.NoError(b, b.store.Delete(b.Context(), key))
		}
		const items, name = 1000, 200
		for range items {
			list.Operations[0].PostOperation = append(list.Operations[0].PostOperation, operation.Resource{Resource: "pods", Name: strings.Repeat("x", name)})
		}
		b.seal(list)
		require.Greater(b, b.start().job.Bytes(), small+items*name)
	})
}
