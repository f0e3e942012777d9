package podvolume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// cancelled has jobs end with their movers.
func (b *bed) cancelled(t *testing.T) {
	queue := queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler"))
	for name, annotations := range map[string]map[string]string{"unwanted": {postHook: "thaw"}, "unwanted-plain": nil} {
		t.Run(name, func(t *testing.T) { // its runner cancels the first one, which waits with the hook, and the monitor the other one
			b.createApplication(t, name, annotations)
			release := b.holdMovers(t, 2, func() { b.createBackup(t, name) })
			defer release()
			_, err := queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
			require.NoError(t, err)
			backup := b.BackupEnds(t, name)
			require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
			require.Contains(t, backup.Status.FailureReason, "cancel")
			require.Eventually(t, func() bool { return len(b.apps.commandsIn(name)) == len(annotations) }, site.Patience, site.Look, "the hook runs")
			require.Eventually(t, func() bool {
				for _, p := range b.requests(t, name) {
					if p.Status.Phase != velerov1.PodVolumePhaseCanceled {
						return false
					}
				}
				return true
			}, site.Patience, site.Look, "the requests are Canceled")
			b.requireNoMovers(t)
		})
	}
	t.Run("a restore", func(t *testing.T) {
		const name = "choosy-copy"
		ctx, stop := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		release := b.holdMovers(t, 1, func() {
			pod := b.createRestore(t, "choosy", name)
			go func() { waited <- b.movers.WaitRestored(ctx, pod) }()
		})
		defer release()
		_, err := queue.CancelRestore(t.Context(), &queuev1.CancelRestoreRequest{Name: name, RequestedBy: "alice"})
		require.NoError(t, err)
		require.Equal(t, velerov1.RestorePhaseFailed, b.RestoreEnds(t, name).Status.Phase)
		for _, r := range b.restoreRequests(t, name) {
			require.Equal(t, velerov1.PodVolumePhaseCanceled, r.Status.Phase, r.Status.Message)
		}
		b.requireNoMovers(t)
		stop()
		require.ErrorIs(t, <-waited, context.Canceled, "the Pod does not start without its data")
	})
}

// holdMovers begins something, and returns when as many movers of it are held.
func (b *bed) holdMovers(t *testing.T, count int, begin func()) (release func()) {
	t.Helper()
	before := b.movers.Held()
	b.movers.Hold()
	begin()
	require.Eventually(t, func() bool { return b.movers.Held()-before == count }, site.Patience, site.Look, "the movers run")
	return b.movers.Release
}

// createRestore requests a restore of a name, which is that of the namespace too, and returns Pod db when it is
// restored and has a node.
func (b *bed) createRestore(t *testing.T, backup, namespace string) *corev1.Pod {
	t.Helper()
	b.createVolumes(t, 1)
	spec := velerov1.RestoreSpec{BackupName: backup}
	if namespace != backup {
		spec.NamespaceMapping = map[string]string{backup: namespace}
	}
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: namespace}, Spec: spec}))
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "db"}, &corev1.Pod{}) == nil
	}, site.Patience, site.Look, "the Pod is restored into %s", namespace)
	b.awaitBound(t, namespace)
	pod, err := b.node.Bind(t.Context(), namespace, "db")
	require.NoError(t, err)
	return pod
}

// restoreRequests returns the PodVolumeRestores of a restore.
func (b *bed) restoreRequests(t *testing.T, restore string) []velerov1.PodVolumeRestore {
	t.Helper()
	list := &velerov1.PodVolumeRestoreList{}
	require.NoError(t, b.Client.List(t.Context(), list, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelRestoreName: restore}))
	return list.Items
}
