package operations_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
)

// registered has every action of the kinds that are true.
type registered map[pluginhost.Kind]bool

// Has implements operations.Plugins.
func (r registered) Has(kind pluginhost.Kind, _ string) (bool, error) { return r[kind], nil }

// A backup with CSI snapshots of another server ended Completed, and its VolumeSnapshots stayed in the
// cluster with the policy Delete.
func TestOperationsOfCSISnapshotsAreNotFollowed(t *testing.T) {
	all := operations.Registered{Plugins: registered{pluginhost.KindAsyncBackupItemAction: true, pluginhost.KindBackupItemActionV2: true}}
	for name, want := range map[string]string{
		csisnapshot.NameClaim: "", csisnapshot.NameSnapshot: "", csisnapshot.NameContent: "", csisnapshot.NameClass: "",
		"vendor.io/a": string(pluginhost.KindAsyncBackupItemAction),
	} {
		got, err := all.Kind(operation.KindBackup, name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}

// unclear could not ask what there is of a kind.
type unclear struct {
	registered
	of pluginhost.Kind
}

var errUnclear = errors.New("a binary was not asked yet")

// Has implements operations.Plugins.
func (u unclear) Has(kind pluginhost.Kind, name string) (bool, error) {
	if kind == u.of {
		return false, errUnclear
	}
	return u.registered.Has(kind, name)
}

// A binary that could not be read kept operations from being followed whose action is registered.
func TestAnActionIsFoundThoughABinaryCannotBeRead(t *testing.T) {
	for job, kinds := range map[string][2]pluginhost.Kind{
		operation.KindBackup:  {pluginhost.KindAsyncBackupItemAction, pluginhost.KindBackupItemActionV2},
		operation.KindRestore: {pluginhost.KindAsyncRestoreItemAction, pluginhost.KindRestoreItemActionV2},
	} {
		got, err := operations.Registered{Plugins: unclear{registered{kinds[1]: true}, kinds[0]}}.Kind(job, "vendor.io/a")
		require.NoError(t, err)
		require.Equal(t, string(kinds[1]), got)
		got, err = operations.Registered{Plugins: unclear{nil, kinds[0]}}.Kind(job, "vendor.io/a")
		require.ErrorIs(t, err, errUnclear, "it may be what that binary has")
		require.Empty(t, got)
	}
}
