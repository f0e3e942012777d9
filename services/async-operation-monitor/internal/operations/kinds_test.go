package operations_test

import (
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
