package protect_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/protect"
)

func TestAPanicOfOneWorkerIsAnErrorAndEndsTheOthers(t *testing.T) {
	var log bytes.Buffer
	err := protect.Each(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), []int{0, 1, 2}, func(ctx context.Context, n int) error {
		if n == 1 {
			panic("defect")
		}
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, protect.ErrPanic)
	require.ErrorContains(t, err, "defect")
	require.Contains(t, log.String(), "protect_test.go")
}
