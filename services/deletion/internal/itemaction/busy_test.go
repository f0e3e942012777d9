package itemaction

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

// One action that hangs collects every deletion that comes to it, until no more may be under way
// and those of other plugins wait.
func TestOnlySoManyDeletionsWaitForOneAction(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("o", "p")...)
	b.r.Calls = &Calls{Limit: 1}
	hung, release := make(chan struct{}), make(chan struct{})
	first := true
	b.registerAction("a.io/x", everything, func(context.Context, string) error {
		if first {
			first = false
			close(hung)
			<-release
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- b.runAttempt(t.Context()) }()
	<-hung
	other := *b.r
	err := other.Run(t.Context(), Job{Backup: backupNamed("b"), UID: "uid-b", Attempt: "2", Store: b.store, Confirm: func(context.Context) error { return nil }})
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "a.io/x")
	close(release)
	require.NoError(t, <-done)
	b.takeNotes()
	require.NoError(t, b.runNextAttempt())
	require.Empty(t, b.takeNotes(), "all is done")
}
