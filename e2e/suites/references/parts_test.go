package references

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// restoreOneCluster brings one of two Clusters back, with all that it owns and needs, out of the backup in Velero's
// layout. Both Clusters have bindings that name one ClusterResourceSet, which owns both.
func (b *bed) restoreOneCluster(t *testing.T, name string) {
	line := "restore create " + name + " --from-backup " + foreign + " --item cluster.cluster.x-k8s.io/red -n machines --with-dependencies --with-children --wait"
	_, err := b.CLI(t).Run(t.Context(), strings.Fields(line)...)
	require.NoError(t, err)
	var want []string
	for _, object := range b.estate.spaces["machines"] {
		if !strings.HasPrefix(object.GetName(), "blue") {
			want = append(want, nameOf(object))
		}
	}
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(b.estate.listObjects(t, b.Site, "machines"))))
	require.Empty(t, b.estate.listObjects(t, b.Site, "certificates"))
	require.Empty(t, b.estate.listObjects(t, b.Site, "databases"))
	restore := b.RestoreEnds(t, name)
	require.Zero(t, restore.Status.Errors+restore.Status.Warnings)
}
