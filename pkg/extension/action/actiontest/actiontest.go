// Package actiontest checks actions against what package action promises of them: each
// implementation runs it on objects of its own choice.
package actiontest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// callsAtOnce is how many calls of an action are made at the same time.
const callsAtOnce = 8

// RunBackupItem checks an action on objects, given as JSON, that it does not refuse.
func RunBackupItem(t *testing.T, a action.BackupItem, objects ...string) {
	t.Helper()
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	runCalls(t, a, objects, func(sent *action.Object) ([]action.Item, error) {
		r, err := a.Execute(t.Context(), sent, backup)
		if err == nil {
			checkIdentity(t, a, sent, r.Object, true)
		}
		return slices.Concat(r.Additional, r.PostOperation), err
	})
}

// RunRestoreItem is RunBackupItem for an action on objects that are restored.
func RunRestoreItem(t *testing.T, a action.RestoreItem, objects ...string) {
	t.Helper()
	restore, err := action.NewRestore(&velerov1.Restore{})
	require.NoError(t, err)
	runCalls(t, a, objects, func(sent *action.Object) ([]action.Item, error) {
		r, err := a.Execute(t.Context(), sent, sent, restore)
		if err == nil && !r.Skip {
			checkIdentity(t, a, sent, r.Object, false)
		}
		return r.Additional, err
	})
}

// RunItemBlock is RunBackupItem for an action that names what belongs together.
func RunItemBlock(t *testing.T, a action.ItemBlock, objects ...string) {
	t.Helper()
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	runCalls(t, a, objects, func(sent *action.Object) ([]action.Item, error) { return a.Related(t.Context(), sent, backup) })
}

// RunDeleteItem is RunBackupItem for an action on objects of a backup that is deleted.
func RunDeleteItem(t *testing.T, a action.DeleteItem, objects ...string) {
	t.Helper()
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(t, err)
	runCalls(t, a, objects, func(sent *action.Object) ([]action.Item, error) { return nil, a.Execute(t.Context(), sent, backup) })
}

// unknownCluster resolves no resource: names stay as they are.
type unknownCluster struct{}

// Resolve implements the resolver of a selector.
func (unknownCluster) Resolve(string) (gr schema.GroupResource, namespaced, ok bool) {
	return schema.GroupResource{}, false, false
}

// runCalls makes calls for each object at the same time. The action has a name of a vendor, says
// which objects it is for, and leaves what it is given as it was; the items that it names can be found.
func runCalls(t *testing.T, a action.Action, objects []string, call func(*action.Object) ([]action.Item, error)) {
	t.Helper()
	vendor, name, _ := strings.Cut(a.Name(), "/")
	require.NotEmpty(t, vendor, a.Name())
	require.NotEmpty(t, name, a.Name())
	selector, err := a.AppliesTo(t.Context())
	require.NoError(t, err, a.Name())
	_, err = selector.Compile(unknownCluster{})
	require.NoError(t, err, a.Name())
	var calls errgroup.Group
	for range callsAtOnce {
		for _, object := range objects {
			calls.Go(func() error {
				sent, want := action.FromJSON([]byte(object)), action.FromJSON([]byte(object))
				items, err := call(sent)
				for _, item := range items {
					assert.NotEmpty(t, item.Name, "%s names an object without a name", a.Name())
					assert.NotEmpty(t, item.Resource, "%s names an object without a resource", a.Name())
				}
				before, _ := want.Content()
				after, _ := sent.Content()
				assert.Equal(t, before, after, "%s changed the object it was given", a.Name())
				return err
			})
		}
	}
	require.NoError(t, calls.Wait(), a.Name())
}

// checkIdentity compares which object is returned with which was sent; a restore may change the
// namespace.
func checkIdentity(t *testing.T, a action.Action, sent, returned *action.Object, sameNamespace bool) {
	t.Helper()
	if !assert.NotNil(t, returned, a.Name()) {
		return
	}
	was, err := sent.Identity()
	assert.NoError(t, err)
	is, err := returned.Identity()
	assert.NoError(t, err)
	if !sameNamespace {
		was.Namespace = is.Namespace
	}
	assert.Equal(t, was, is, "%s returned another object", a.Name())
}
