package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// lagging is a cache of Backups that stands still between two calls of catchUp.
type lagging struct {
	client.Reader

	shown velerov1.BackupList
}

func (l *lagging) catchUp(t *testing.T) {
	t.Helper()
	l.shown = velerov1.BackupList{}
	require.NoError(t, l.Reader.List(t.Context(), &l.shown))
}

func (l *lagging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if backups, ok := list.(*velerov1.BackupList); ok {
		l.shown.DeepCopyInto(backups)
		return nil
	}
	return l.Reader.List(ctx, list, options...)
}

// A pass whose cache does not show the writes of earlier passes goes by these writes. A cache that is
// newer than a write decides.
func TestAPassIsAtLeastAsNewAsItsOwnWrites(t *testing.T) {
	reads := 0
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, backup := obj.(*velerov1.Backup); backup {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	cache := &lagging{Reader: b.c}
	s := b.newScheduler(func(c *queue.Config) { c.Jobs = cache })
	b.createBackup("one", 1, "ns1")
	b.createBackup("two", 2, "ns1")
	cache.catchUp(t)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("one"))
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("two"))

	before := reads
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, before, reads, "the cache shows both as new, and nothing is left to do")

	b.setPhase("one", velerov1.BackupPhaseInProgress)
	b.setPhase("one", velerov1.BackupPhaseCompleted)
	cache.catchUp(t)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("two"))
	require.Equal(t, []string{"two"}, b.admittedNames())
}
