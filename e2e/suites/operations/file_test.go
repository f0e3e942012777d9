package operations

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fileOperation is an entry of the file of operations as Velero 1.18 decodes it.
type fileOperation struct {
	Spec struct {
		BackupName         string       `json:"backupName"`
		BackupUID          string       `json:"backupUID"`
		BackupItemAction   string       `json:"backupItemAction"`
		ResourceIdentifier identifier   `json:"resourceIdentifier"`
		OperationID        string       `json:"operationID"`
		PostOperationItems []identifier `json:"postOperationItems"`
	} `json:"spec"`
	Status struct {
		Phase          string     `json:"phase"`
		Error          string     `json:"error"`
		NCompleted     int64      `json:"nCompleted"`
		NTotal         int64      `json:"nTotal"`
		OperationUnits string     `json:"operationUnits"`
		Description    string     `json:"description"`
		Created        *time.Time `json:"created"`
		Started        *time.Time `json:"started"`
		Updated        *time.Time `json:"updated"`
	} `json:"status"`
}

type identifier struct{ Group, Resource, Namespace, Name string }

// The keys that Velero writes: of specs and identifiers all, of a status those that are not empty.
var (
	specKeys       = []string{"backupItemAction", "backupName", "backupUID", "operationID", "postOperationItems", "resourceIdentifier"}
	identifierKeys = []string{"Group", "Name", "Namespace", "Resource"}
	statusKeys     = []string{"created", "description", "error", "nCompleted", "nTotal", "operationUnits", "phase", "started", "updated"}
)

// readOperations reads the file of operations of a backup, by the identifiers of the operations, and
// requires it to be as Velero writes it.
func (b *bed) readOperations(t *testing.T, backup string) map[string]fileOperation {
	t.Helper()
	text := b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+"-itemoperations.json.gz")
	requireShape(t, text)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var list []fileOperation
	require.NoError(t, decoder.Decode(&list))
	found, uid := map[string]fileOperation{}, string(b.getBackup(t, backup).UID)
	for _, o := range list {
		require.Equal(t, []string{backup, uid}, []string{o.Spec.BackupName, o.Spec.BackupUID})
		require.NotContains(t, found, o.Spec.OperationID)
		found[o.Spec.OperationID] = o
	}
	return found
}

// requireShape compares the keys themselves, since Go's decoder ignores their case.
func requireShape(t *testing.T, text []byte) {
	t.Helper()
	var list []struct{ Spec, Status map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(text, &list))
	for _, o := range list {
		require.Equal(t, specKeys, keysOf(o.Spec))
		var items []map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(o.Spec["postOperationItems"], &items))
		var item map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(o.Spec["resourceIdentifier"], &item))
		for _, i := range append(items, item) {
			require.Equal(t, identifierKeys, keysOf(i))
		}
		require.Subset(t, statusKeys, keysOf(o.Status))
		for key, value := range o.Status {
			require.NotContains(t, []string{`0`, `""`}, string(value), key)
		}
		for _, key := range []string{"created", "started", "updated"} {
			if value, ok := o.Status[key]; ok {
				require.Regexp(t, `^("\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"|null)$`, string(value), "%s has no fraction of a second", key)
			}
		}
	}
}

func keysOf(m map[string]json.RawMessage) []string { return slices.Sorted(maps.Keys(m)) }

// workItem is what a work was begun for, and action what began it.
func (w *workObject) workItem() (of identifier, action string) {
	if w.Spec.Key == "" {
		return identifier{Resource: "secrets", Namespace: w.Namespace, Name: w.Spec.Item}, vendorAction
	}
	return identifier{Resource: "configmaps", Namespace: w.Namespace, Name: w.Spec.Item}, ownAction
}

// entryOf returns the entry of a work, and requires that it has what was begun.
func entryOf(t *testing.T, file map[string]fileOperation, w *workObject) fileOperation {
	t.Helper()
	require.Contains(t, file, w.workID())
	o := file[w.workID()]
	of, action := w.workItem()
	require.Equal(t, action, o.Spec.BackupItemAction)
	require.Equal(t, of, o.Spec.ResourceIdentifier)
	require.Equal(t, []identifier{{Group: group, Resource: works, Namespace: w.Namespace, Name: w.Name}}, o.Spec.PostOperationItems)
	require.NotNil(t, o.Status.Created)
	return o
}

// requireCompleted requires that an operation completed, with its last progress.
func requireCompleted(t *testing.T, file map[string]fileOperation, w *workObject) {
	t.Helper()
	o := entryOf(t, file, w)
	require.Equal(t, "Completed", o.Status.Phase, "%s: %s", w.workID(), o.Status.Error)
	require.Empty(t, o.Status.Error)
	require.Equal(t, []int64{total, total}, []int64{o.Status.NCompleted, o.Status.NTotal})
	require.Equal(t, unit, o.Status.OperationUnits)
	if w.Spec.Key != "" {
		require.Equal(t, "working for "+w.Spec.Item, o.Status.Description)
	}
	require.NotNil(t, o.Status.Started)
	require.True(t, w.startedAt().Truncate(time.Second).Equal(*o.Status.Started), "%s: %s is not %s", w.workID(), o.Status.Started, w.startedAt())
}

// requireFailed requires that an operation failed, with the reason in every place that reports it.
func (b *bed) requireFailed(t *testing.T, backup string, file map[string]fileOperation, w *workObject, why string) {
	t.Helper()
	o := entryOf(t, file, w)
	require.Equal(t, "Failed", o.Status.Phase, w.workID())
	results, log := b.errorMessages(t, backup), b.readLog(t, backup)
	of, action := w.workItem()
	require.Contains(t, o.Status.Error, why, w.workID())
	said := slices.IndexFunc(results, func(message string) bool { return containsAll(message, w.workID(), action, of.Name, o.Status.Error) })
	require.GreaterOrEqual(t, said, 0, "an error names %s, %s and %q:\n%q", w.workID(), action, o.Status.Error, results)
	require.Contains(t, log, w.workID())
}
