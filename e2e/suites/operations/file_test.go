package operations

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
)

// readOperations reads the operations of a backup from its file, keyed by the item whose action started each.
func (b *bed) readOperations(t *testing.T, backup string) map[string]itemoperation.Operation {
	t.Helper()
	return b.decodeOperations(t, "backups/"+backup+"/"+backup+"-itemoperations.json.gz")
}

// restoreOperations reads the file of operations of a restore.
func (b *bed) restoreOperations(t *testing.T, name string) map[string]itemoperation.Operation {
	t.Helper()
	return b.decodeOperations(t, "restores/"+name+"/restore-"+name+"-itemoperations.json.gz")
}

func (b *bed) decodeOperations(t *testing.T, key string) map[string]itemoperation.Operation {
	t.Helper()
	list, err := itemoperation.Decode(bytes.NewReader(b.bucket.Read(t, key)))
	require.NoError(t, err)
	found := map[string]itemoperation.Operation{}
	for _, o := range list {
		found[o.Spec.Resource.Name] = o
	}
	require.Len(t, found, len(list))
	return found
}

// requireCompleted requires that the operation of a backup that a work stands for completed, with its last progress.
func requireCompleted(t *testing.T, file map[string]itemoperation.Operation, w *workObject) {
	t.Helper()
	o, of, action := file[w.Spec.Item], itemoperation.Resource{Resource: "configmaps", Namespace: w.Namespace, Name: w.Spec.Item}, ownAction
	if w.Spec.Key == "" {
		of.Resource, action = "secrets", vendorAction
	}
	require.Equal(t, []string{w.workID(), action}, []string{o.Spec.ID, o.Spec.BackupAction})
	require.Equal(t, of, o.Spec.Resource)
	require.Equal(t, []itemoperation.Resource{{Group: group, Resource: works, Namespace: w.Namespace, Name: w.Name}}, o.Spec.After)
	require.Equal(t, itemoperation.PhaseCompleted, o.Status.Phase, "%s: %s", w.workID(), o.Status.Error)
	require.Equal(t, []int64{total, total}, []int64{o.Status.Completed, o.Status.Total})
	require.Equal(t, unit, o.Status.Units)
	require.NotNil(t, o.Status.Started)
	require.True(t, w.startedAt().Truncate(time.Second).Equal(o.Status.Started.Time), "%s: %s is not %s", w.workID(), o.Status.Started, w.startedAt())
}
