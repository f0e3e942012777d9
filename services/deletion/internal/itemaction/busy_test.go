package itemaction

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

// One action that hangs holds up only as many deletions as may use it. They keep it from their first call
// to their end, so that none has to show all objects again because another one came in between.
func TestOnlySoManyDeletionsUseOneAction(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("o", "p")...)
	b.r.Plugins = &PluginLimit{Deletions: 1}
	x := b.registerAction("a.io/x", everything, nil)
	calls := 0
	b.registerAction("b.io/a", everything, func(ctx context.Context, _ string) error { // a.io/x has answered
		if calls++; calls == 1 {
			err := b.runAttempt(ctx)
			require.ErrorIs(t, err, ErrBusy)
			require.Equal(t, []string{"plugin a.io/x: works for other deletions"}, errorMessages(t, err))
		}
		return nil
	})
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"a.io/x Pod a/o", "b.io/a Pod a/o", "a.io/x Pod a/p", "b.io/a Pod a/p"}, b.takeNotes())

	x.do = failForObject("Pod a/o", errBoom)
	require.ErrorIs(t, b.runAttempt(t.Context()), errBoom)
	x.do = nil
	require.NoError(t, b.runAttempt(t.Context()), "an attempt that ended does not count")
}
