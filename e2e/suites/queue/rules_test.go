package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// testExample is the one of the queue's design, letter by letter: a limit of two; b1 runs, and b2 to b5
// queue behind it. Only b5 starts, b2 when b1 ends, b3 and b4 when b2 ends.
func (b *bed) testExample(t *testing.T) {
	b.createNamespace(t, "ns1", "ns2", "ns3", "ns4", "ns5", "ns6", "ns8", "ns9")
	b1, b2, b5 := b.holdBackup(t, "b1"), b.holdBackup(t, "b2"), b.holdBackup(t, "b5")
	b.submitBackup(t, "b1", "ns1", "ns2")
	awaitHeld(t, b1)
	for i, backup := range []struct {
		name       string
		namespaces []string
	}{
		{"b2", []string{"ns2", "ns3", "ns5"}}, {"b3", []string{"ns4", "ns3"}}, {"b4", []string{"ns5", "ns6"}}, {"b5", []string{"ns8", "ns9"}},
	} {
		b.submitBackup(t, backup.name, backup.namespaces...)
		queued, _ := b.History.At("Backup", backup.name, "Queued")
		require.Equal(t, i+1, queued.Position, "%s enters the queue behind those before it", backup.name)
	}
	awaitHeld(t, b5)
	b.requireQueued(t, "b2", "b3", "b4")
	for i, name := range []string{"b2", "b3", "b4"} {
		steps := b.History.Of("Backup", name)
		require.Equal(t, i+1, steps[len(steps)-1].Position, "%s keeps its place when b5 leaves from behind it", name)
	}

	b5.Release()
	b.requireCompleted(t, "b5")
	b.requirePass(t, "marker-a")
	b.requireQueued(t, "b2", "b3", "b4")

	b1.Release()
	b.requireCompleted(t, "b1")
	awaitHeld(t, b2)
	b.requirePass(t, "marker-b")
	b.requireQueued(t, "b3", "b4")

	b2.Release()
	b.requireCompleted(t, "b2", "b3", "b4")
	ran := map[string]span{}
	for _, name := range []string{"b1", "b2", "b3", "b4", "b5"} {
		ran[name] = b.backupRan(t, name)
	}
	require.Less(t, ran["b5"].from, ran["b1"].end)
	require.Greater(t, ran["b2"].from, ran["b1"].end)
	require.Greater(t, ran["b3"].from, ran["b2"].end)
	require.Greater(t, ran["b4"].from, ran["b2"].end)
}

// wholeCluster lets small backups arrive without a pause, each as soon as the one before is queued,
// while a backup of everything waits for a running one. It runs before all that came after it.
func (b *bed) wholeCluster(t *testing.T) {
	b.createNamespace(t, "busy", "small-0", "small-1", "small-2")
	busy := b.holdBackup(t, "busy")
	b.submitBackup(t, "busy", "busy")
	awaitHeld(t, busy)
	b.submitBackup(t, "before", "small-0")
	b.submitBackup(t, "whole")
	b.requireCompleted(t, "before") // it came first
	var later []string
	for begun := false; !begun; _, begun = b.History.At("Backup", "whole", "InProgress") {
		name := fmt.Sprintf("later-%d", len(later))
		b.submitBackup(t, name, fmt.Sprintf("small-%d", len(later)%3))
		if later = append(later, name); len(later) == 3 {
			b.requireQueued(t, append(slices.Clone(later), "whole")...)
			busy.Release()
		}
		require.Less(t, len(later), 500, "the backup of everything starves")
	}
	b.requireCompleted(t, append(later, "busy", "whole")...)
	whole := b.backupRan(t, "whole")
	require.Greater(t, whole.from, b.backupRan(t, "busy").end)
	for _, name := range later {
		require.Greater(t, b.backupRan(t, name).from, whole.end, "%s came after the backup of everything", name)
	}
}

// restoreFirst requires a restore that waits for a running backup to go before backups that were
// queued earlier, and to delay no job of other namespaces than its backup's.
func (b *bed) restoreFirst(t *testing.T) {
	b.createNamespace(t, "first-a", "first-b", "first-c")
	b.submitBackup(t, "first-base", "first-a", "first-b")
	b.requireCompleted(t, "first-base")
	running := b.holdBackup(t, "first-running")
	b.submitBackup(t, "first-running", "first-a")
	awaitHeld(t, running)
	b.submitBackup(t, "first-queued", "first-a", "first-c")
	b.createRestore(t, "first", "first-base", nil)
	b.awaitNoted(t, "first", "first-a", "first-b")
	b.submitBackup(t, "first-behind", "first-b") // free, but for the restore that waits
	b.requirePass(t, "marker-c")
	b.requireQueued(t, "first-queued", "first-behind")

	running.Release()
	b.requireCompleted(t, "first-running", "first-queued", "first-behind")
	b.requireRestored(t, "first")
	restore := b.restoreRan(t, "first")
	require.Greater(t, restore.from, b.backupRan(t, "first-running").end)
	require.Greater(t, b.backupRan(t, "first-queued").from, restore.end)
	require.Greater(t, b.backupRan(t, "first-behind").from, restore.end)
}

// restoreNow requires a restore that ignores running backups to run beside one, and no
// queued backup to start beside it.
func (b *bed) restoreNow(t *testing.T) {
	b.createNamespace(t, "now")
	b.submitBackup(t, "now-base", "now")
	b.requireCompleted(t, "now-base")
	running := b.holdBackup(t, "now-running")
	b.submitBackup(t, "now-running", "now")
	awaitHeld(t, running)
	b.runCLI(t, "restore", "create", "now", "--from-backup", "now-base", "--now", "--wait")
	b.requireRestored(t, "now")
	require.Equal(t, 1, b.RestoreEnds(t, "now").Status.Warnings, "it says beside whom it ran")
	running.Release()
	b.requireCompleted(t, "now-running")
	restore, backup := b.restoreRan(t, "now"), b.backupRan(t, "now-running")
	require.True(t, restore.runsTogether(backup))
	require.Less(t, restore.end, backup.end)
}

// testExcluded labels a namespace as one that no backup takes while a backup waits that selects it:
// what the runner collects is decided at admission.
func (b *bed) testExcluded(t *testing.T) {
	b.createNamespace(t, "ex-busy", "ex-kept", "ex-secret", "ex-later")
	b.excludeNamespace(t, "ex-secret")
	busy := b.holdBackup(t, "ex-busy")
	b.submitBackup(t, "ex-busy", "ex-busy")
	awaitHeld(t, busy)
	b.submitBackup(t, "ex-all", "ex-*")
	b.excludeNamespace(t, "ex-later")
	busy.Release()
	b.requireCompleted(t, "ex-busy", "ex-all")
	held := map[string]bool{}
	for path := range b.bucket.Stored(t, "ex-all") {
		if name, ok := strings.CutPrefix(path, "resources/configmaps/namespaces/"); ok && strings.HasSuffix(name, "/content.json") {
			held[strings.TrimSuffix(name, "/content.json")] = true
		}
	}
	require.Equal(t, map[string]bool{"ex-busy": true, "ex-kept": true}, held)
	for path := range b.bucket.Stored(t, "ex-all") {
		require.NotContains(t, path, "ex-secret")
		require.NotContains(t, path, "ex-later")
	}
}

// excludeNamespace labels a namespace so that no backup takes it.
func (b *bed) excludeNamespace(t *testing.T, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, velerov1.LabelExcludeFromBackup)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, b.Client.Patch(t.Context(), space, client.RawPatch(types.MergePatchType, []byte(patch))))
}
