package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// One job at a time has a volume, until it lets go or leaves the ledger.
func TestVolumeLocks(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	ctx := t.Context()
	require.ErrorIs(t, l.LockVolume(ctx, "1", "disk"), ledger.ErrNotListed)
	one, two := backup("1", "a"), backup("2", "b")
	require.NoError(t, l.Admit(ctx, one, ledger.Limits{}))
	require.NoError(t, l.Admit(ctx, two, ledger.Limits{}))
	require.NoError(t, l.LockVolume(ctx, "1", "disk"))
	require.NoError(t, l.LockVolume(ctx, "1", "disk"), "it has it already")
	require.ErrorIs(t, l.LockVolume(ctx, "2", "disk"), ledger.ErrVolumeBusy)
	require.NoError(t, l.LockVolume(ctx, "2", "other"))
	require.NoError(t, l.UnlockVolume(ctx, "2", "disk"), "which is not its own")
	require.ErrorIs(t, l.LockVolume(ctx, "2", "disk"), ledger.ErrVolumeBusy)
	require.NoError(t, l.UnlockVolume(ctx, "1", "disk"))
	require.NoError(t, l.LockVolume(ctx, "2", "disk"))

	require.NoError(t, l.Withdraw(ctx, two))
	require.NoError(t, l.LockVolume(ctx, "1", "disk"))
	require.NoError(t, l.Release(ctx, "1"))
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "velero", Name: ledger.Name}, cm))
	require.Empty(t, cm.Data, "nothing is left of jobs that are over")
	entries, err := l.List(ctx)
	require.NoError(t, err)
	require.Empty(t, entries)
}
