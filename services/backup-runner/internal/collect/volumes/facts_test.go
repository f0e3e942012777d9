package volumes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

// A holder that resumes a backup has, from its records, the facts of the former holder's lists.
func TestReplayedRecordsAreAsWhatWasListed(t *testing.T) {
	backup := &velerov1.Backup{Spec: velerov1.BackupSpec{IncludedNamespaces: []string{"a", "gone", "team-*"}}}
	claim := checkpoint.VolumeInfo{PVName: "pv-1", PVCName: "data", PVCNamespace: "a", Pending: true}
	stored := checkpoint.VolumeInfo{PVName: "pv-1", Pending: true}
	pods, secrets := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "secrets"}

	listed := volumes.NewFacts(backup)
	listed.Add(pods, map[string]struct{}{"a": {}})
	listed.AddExtra(secrets, map[string]struct{}{"b": {}})
	require.Equal(t, []string{"a"}, listed.Exist([]string{"a", "b"}))
	listed.Bind([]checkpoint.VolumeInfo{claim, stored})

	replayed := volumes.NewFacts(backup)
	require.False(t, replayed.Extras())
	replayed.Replay(&checkpoint.Record{
		Ranges:    []checkpoint.Range{{Resource: "pods", Items: 1}, {Resource: "nodes"}},
		Resources: []string{"secrets"}, Namespaces: []string{"a", "b"}, Seen: []string{"a"}, Volumes: []checkpoint.VolumeInfo{claim, stored},
	})
	for name, f := range map[string]*volumes.Facts{"listed": listed, "replayed": replayed} {
		require.Equal(t, []schema.GroupResource{pods, secrets}, f.Collected(), name)
		require.Equal(t, []string{"a", "b"}, f.Namespaces(), name)
		require.Equal(t, []string{"gone"}, f.Absent(), name)
		require.Equal(t, []string{"pv-1"}, f.BoundVolumes(), name)
		require.True(t, f.Bound("pv-1"), name)
		require.True(t, f.Extras(), name)
		require.True(t, f.Holds("b"), name)
		require.Equal(t, map[string]volumes.Volume{"pv-1": {Stored: true, Claims: []checkpoint.VolumeInfo{claim}}}, f.Undecided(), name)
	}
}
