package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// testExample is the one of the queue's design, letter by letter: a limit of two; b1 runs, and b2 to b5
// queue behind it. Only b5 starts, b2 when b1 ends, b3 and b4 when b2 ends.
func (b *bed) testExample(t *testing.T) {
	b.createNamespace(t, "ns1", "ns2", "ns3", "ns4", "ns5", "ns6", "ns8", "ns9")
	b1, b2, b5 := b.holdBackup(t, "b1"), b.holdBackup(t, "b2"), b.holdBackup(t, "b5")
	b.submitBackup(t, "b1", "ns1", "ns2")
	site.AwaitHeld(t, b1)
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
	site.AwaitHeld(t, b5)
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
	site.AwaitHeld(t, b2)
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

// restoreNow requires a restore that ignores running backups to run beside one, and no
// queued backup to start beside it.
func (b *bed) restoreNow(t *testing.T) {
	b.createNamespace(t, "now")
	b.submitBackup(t, "now-base", "now")
	b.requireCompleted(t, "now-base")
	running := b.holdBackup(t, "now-running")
	b.submitBackup(t, "now-running", "now")
	site.AwaitHeld(t, running)
	_, err := b.CLI(t).Run(t.Context(), "restore", "create", "now", "--from-backup", "now-base", "--now", "--wait")
	require.NoError(t, err)
	restored := b.RestoreEnds(t, "now")
	require.Equal(t, velerov1.RestorePhaseCompleted, restored.Status.Phase, restored.Status.FailureReason)
	require.Equal(t, 1, restored.Status.Warnings, "it says beside whom it ran")
	running.Release()
	b.requireCompleted(t, "now-running")
	restore, backup := b.restoreRan(t, "now"), b.backupRan(t, "now-running")
	require.True(t, restore.runsTogether(backup))
	require.Less(t, restore.end, backup.end)
}
