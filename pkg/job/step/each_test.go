package step

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that panics ends the context of those beside it: they did their whole work, and the panic
// reached the caller only after it.
func TestAPanicEndsTheCallsBesideIt(t *testing.T) {
	require.Panics(t, func() {
		_ = Each(t.Context(), 2, 2, func(ctx context.Context, i int) error {
			if i == 0 {
				panic("no such method")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	})
}
