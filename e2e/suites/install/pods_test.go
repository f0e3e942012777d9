//go:build node

package install

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

const (
	large = "large"
	// many objects take a backup some seconds.
	many = 40_000
	// handOver is within what another replica holds the job of one that is evicted: far below the claim timeout of 30 s, after which it would
	// take the job over anyway.
	handOver = 15 * time.Second
)

// testReplicas has three of backup-runner work at once, each on some of the backups of different
// namespaces.
func (b *bed) testReplicas(t *testing.T) {
	b.upgradeChart(t, "--set", "backupRunner.replicas=3", "--set", "configuration.concurrentBackups=6")
	require.Len(t, b.servicePods(t, "backup-runner"), 3)
	const namespaces = 12
	for i := range namespaces {
		name := fmt.Sprintf("work-%d", i)
		b.createNamespace(t, name)
		require.NoError(t, seed.Bulk(t.Context(), b.config, seed.BulkOptions{Namespace: name, Count: 300, Size: 1024}))
	}
	held := map[string]int{}
	for round := 0; len(held) < 3; round++ { // NATS gives work to whoever asks for it, in no order
		require.Less(t, round, 5, "a replica has no backup: %v", held)
		for i := range namespaces {
			require.NoError(t, b.createBackup(t.Context(), fmt.Sprintf("shared-%d-%d", round, i), fmt.Sprintf("work-%d", i)))
		}
		for i := range namespaces {
			c, found, err := claim.Parse(b.awaitCompleted(t, fmt.Sprintf("shared-%d-%d", round, i)))
			require.NoError(t, err)
			require.True(t, found)
			require.EqualValues(t, 1, c.Epoch)
			held[c.Owner]++
		}
		t.Logf("backups by replica: %v", held)
	}
}

// testKilled removes the Pod of a holder at once, as a lost node does: another replica ends the backup,
// with every object.
func (b *bed) testKilled(t *testing.T) {
	b.createNamespace(t, large)
	require.NoError(t, seed.Bulk(t.Context(), b.config, seed.BulkOptions{Namespace: large, Count: many, Size: 200}))
	require.NoError(t, b.createBackup(t.Context(), "killed", large))
	pod, first := b.awaitOwner(t, "killed")
	require.NoError(t, b.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	backup := b.awaitCompleted(t, "killed")
	c, _, err := claim.Parse(backup)
	require.NoError(t, err)
	require.NotEqual(t, first, c, "the backup was taken over")
	require.GreaterOrEqual(t, backup.Status.Progress.ItemsBackedUp, many)
	require.NoError(t, b.createBackup(t.Context(), "undisturbed", large))
	require.Equal(t, b.awaitCompleted(t, "undisturbed").Status.Progress, backup.Status.Progress)
}

// testEvicted evicts the Pod of a holder, as a drain of its node does: another replica holds the backup
// at once, and ends it.
func (b *bed) testEvicted(t *testing.T) {
	b.awaitThreeReady(t)
	require.NoError(t, b.createBackup(t.Context(), "evicted", large))
	pod, first := b.awaitOwner(t, "evicted")
	meta := metav1.ObjectMeta{Namespace: server, Name: pod.Name}
	require.NoError(t, b.kube.PolicyV1().Evictions(server).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: meta}))
	began := time.Now()
	require.Eventually(t, func() bool {
		backup := &velerov1.Backup{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "evicted"}, backup))
		require.False(t, backup.Status.Phase.Terminal(), "the backup ended before its holder did, after %s", time.Since(began))
		c, _, err := claim.Parse(backup)
		require.NoError(t, err)
		return c.Owner != "" && c.Owner != first.Owner
	}, patience, look)
	took := time.Since(began)
	t.Logf("another replica holds the backup after %s", took)
	require.Less(t, took, handOver)
	require.GreaterOrEqual(t, b.awaitCompleted(t, "evicted").Status.Progress.ItemsBackedUp, many)
}

// awaitThreeReady waits until three Pods of backup-runner are ready.
func (b *bed) awaitThreeReady(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		count := 0
		for _, pod := range b.servicePods(t, "backup-runner") {
			if isReady(pod) {
				count++
			}
		}
		return count == 3
	}, patience, look, "three Pods of backup-runner are ready")
}

// awaitOwner waits until a replica works on a backup, and returns its Pod and its claim.
func (b *bed) awaitOwner(t *testing.T, name string) (pod *corev1.Pod, c claim.Claim) {
	t.Helper()
	backup := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: name}, backup))
		var err error
		c, _, err = claim.Parse(backup)
		require.NoError(t, err)
		return c.Owner != "" && backup.Status.Phase == velerov1.BackupPhaseInProgress
	}, patience, look, "backup %s has a holder", name)
	for _, pod := range b.servicePods(t, "backup-runner") {
		if strings.HasPrefix(c.Address, "["+pod.Status.PodIP+"]:") {
			return pod, c
		}
	}
	require.Failf(t, "no Pod", "holder %s is at %s", c.Owner, c.Address)
	return nil, c
}
