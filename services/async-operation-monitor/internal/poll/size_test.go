package poll_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
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

// What actions tell of operations is as long as these.
func TestTheMemoryOfAJobGrowsWithItsProgress(t *testing.T) {
	inBubble(t, []string{"one", "two"}, func(b *bed) {
		p := b.start()
		before := p.job.Bytes()
		const told, failure = 500, 300
		b.plugins.on("one", func(context.Context) (action.Progress, error) {
			return action.Progress{Description: strings.Repeat("x", told)}, nil
		})
		b.plugins.on("two", fails(errors.New(strings.Repeat("x", failure))))
		p.run(2 * frequency)
		require.GreaterOrEqual(b, p.job.Bytes(), before+told+failure)
	})
}
