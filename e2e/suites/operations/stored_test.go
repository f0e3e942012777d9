package operations

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// storedAgain has operations whose custom resources are stored, and come back, as they are at the end.
func (b *bed) storedAgain(t *testing.T) {
	const name = "again"
	b.Namespace(t, name)
	b.controller.holdOperations(name)
	b.createOwnObject(t, name, "first", operationOrder{})
	b.createVendorObject(t, name, "second", operationOrder{})
	b.Backup(t, name, b.bucket, name)
	waiting := b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	b.controller.releaseHeld(name)
	backup := b.awaitEnd(t, name, velerov1.BackupPhaseCompleted, 2, 0)
	require.Zero(t, backup.Status.Errors+backup.Status.Warnings, b.readResults(t, name))
	require.GreaterOrEqual(t, backup.Status.Progress.ItemsBackedUp, waiting.Status.Progress.ItemsBackedUp)

	stored := map[string][]byte{} // of two entries of one path the later one counts
	b.bucket.EachStored(t, name, func(path string, content []byte) { stored[path] = content })
	for _, w := range b.worksOf(t, name) {
		path := "resources/works.operations.example.com/namespaces/again/" + w.Name + ".json"
		require.Contains(t, stored, path)
		var last workObject
		require.NoError(t, json.Unmarshal(stored[path], &last))
		require.Equal(t, []string{done, "Ended"}, []string{last.Spec.Result, last.Status.Phase}, path)
		require.Equal(t, stored[path], stored["resources/works.operations.example.com/v1-preferredversion/namespaces/again/"+w.Name+".json"])
		if w.Spec.Item == "first" {
			require.Contains(t, string(stored["resources/configmaps/namespaces/again/first.json"]), w.Name, "what Start made of its item")
		}
	}

	b.Restore(t, name, name, name, "later")
	r := b.RestoreEnds(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	restored, results := &workList{}, 0
	require.NoError(t, b.works.List(t.Context(), restored))
	for _, w := range restored.Items {
		if w.Namespace == "later" {
			require.Equal(t, done, w.Spec.Result, "the later state comes back")
			results++
		}
	}
	require.Equal(t, 2, results)
}
