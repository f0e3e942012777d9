package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// One job at a time has a volume, until it lets go or leaves the ledger.
func TestVolumeLocks(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	ctx := t.Context()
	require.ErrorIs(t, l.LockVolume(ctx, "1", "disk"), ledger.ErrNotListed)
	one, two := backupEntry("1", "a"), backupEntry("2", "b")
	require.NoError(t, jobtest.Admit(ctx, l, one, ledger.Limits{}))
	require.NoError(t, jobtest.Admit(ctx, l, two, ledger.Limits{}))
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
	require.NoError(t, l.Withdraw(ctx, backupEntry("1")))
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "velero", Name: ledger.Name}, cm))
	require.Empty(t, cm.Data, "nothing is left of jobs that are over")
	entries, err := l.List(ctx)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// The locks of other jobs stay when one leaves the list: a second snapshot of their volumes could
// begin beside theirs.
func TestAJobThatLeavesKeepsTheVolumesOfOthersLocked(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	ctx := t.Context()
	for uid, volume := range map[types.UID]string{"1": "first", "2": "second"} {
		require.NoError(t, jobtest.Admit(ctx, l, backupEntry(string(uid), "ns-"+string(uid)), ledger.Limits{}))
		require.NoError(t, l.LockVolume(ctx, uid, volume))
	}
	require.NoError(t, jobtest.Admit(ctx, l, backupEntry("3", "c"), ledger.Limits{}))
	require.NoError(t, l.Withdraw(ctx, backupEntry("1")))
	require.NoError(t, l.LockVolume(ctx, "3", "first"))
	require.ErrorIs(t, l.LockVolume(ctx, "3", "second"), ledger.ErrVolumeBusy)
}

// A lock whose job is not in the list any more, because a user edited it, delays no other job.
func TestALockWithoutItsJobIsNone(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	ctx := t.Context()
	require.NoError(t, jobtest.Admit(ctx, l, backupEntry("1", "a"), ledger.Limits{}))
	require.NoError(t, jobtest.Admit(ctx, l, backupEntry("2", "b"), ledger.Limits{}))
	require.NoError(t, l.LockVolume(ctx, "1", "disk"))
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "velero", Name: ledger.Name}, cm))
	delete(cm.Data, "job.1")
	require.NoError(t, c.Update(ctx, cm))
	require.NoError(t, l.LockVolume(ctx, "2", "disk"))
}
