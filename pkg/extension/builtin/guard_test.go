package builtin_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/action/actiontest"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
)

// broken panics at its first call and has no objects afterwards.
type broken struct{ called bool }

func (b *broken) Each(context.Context, schema.GroupResource, string, string, func(*action.Object) error) error {
	if b.called {
		return nil
	}
	b.called = true
	panic("defect")
}

func TestAPanicCostsTheObjectOnly(t *testing.T) {
	items, _ := builtin.ForBackup(&broken{})
	a := byName(t, items, "velero.io/service-account")
	o := action.FromJSON([]byte(accountBot))
	_, err := a.Execute(t.Context(), o, backupJob(t))
	require.ErrorIs(t, err, builtin.ErrPanic)
	require.EqualError(t, err, "action velero.io/service-account: Execute: panic: defect")
	_, err = a.Execute(t.Context(), o, backupJob(t))
	require.NoError(t, err)
}

// slow answers when it is let go.
type slow struct {
	*cluster
	entered, let chan struct{}
}

func (s slow) Each(ctx context.Context, gr schema.GroupResource, namespace, selector string, visit func(*action.Object) error) error {
	close(s.entered)
	<-s.let
	return s.cluster.Each(ctx, gr, namespace, selector, visit)
}

func TestWhoWaitsForAnothersReadEndsWithItsOwnContext(t *testing.T) {
	s := slow{newAccountCluster(), make(chan struct{}), make(chan struct{})}
	items, _ := builtin.ForBackup(s)
	a := byName(t, items, "velero.io/service-account")
	var reader errgroup.Group
	reader.Go(func() error {
		_, err := a.Execute(t.Context(), action.FromJSON([]byte(accountBot)), backupJob(t))
		return err
	})
	<-s.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Execute(ctx, action.FromJSON([]byte(accountBot)), backupJob(t))
	require.ErrorIs(t, err, context.Canceled)
	close(s.let)
	require.NoError(t, reader.Wait())
}

func TestConformance(t *testing.T) {
	c := configuredCluster()
	items, blocks := builtin.ForBackup(c)
	objects := []string{accountBot, pod, `{"metadata":{"namespace":"shop","name":"data"},"spec":{"storageClassName":"old"}}`}
	for _, a := range items {
		actiontest.RunBackupItem(t, a, objects...)
	}
	for _, a := range blocks {
		actiontest.RunItemBlock(t, a, objects...)
	}
	for _, a := range builtin.ForRestore(c) {
		actiontest.RunRestoreItem(t, a, objects...)
	}
}
