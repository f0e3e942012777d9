package collect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/action"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/apifake"
)

// The volume of a collected claim needs no label, whatever brought the claim, and
// is stored once if it has one.
func TestAVolumeWithoutTheLabelComesWithItsClaim(t *testing.T) {
	label := map[string]string{"app": "only"}
	every := true
	for name, tt := range map[string]struct {
		claims int // of which every other one's volume has the label
		spec   velerov1.BackupSpec
	}{
		"few":                  {4, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludeClusterResources: &every}},
		"many":                 {3 * namedLists, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludeClusterResources: &every}},
		"one of two selectors": {4, velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"app": "other"}}, {MatchLabels: label}}, IncludeClusterResources: &every}},
		"new filters":          {4, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludedClusterScopedResources: []string{"*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			api := estate()
			claim := func(name, volume string, labels map[string]string) {
				api.Add("persistentvolumeclaims", apifake.Object{Namespace: "a", Name: name, Labels: labels, Body: map[string]any{"spec": map[string]string{"volumeName": volume}}})
			}
			for i := range tt.claims {
				volume := apifake.Object{Name: fmt.Sprintf("pv-%02d", i)}
				if i%2 == 0 {
					volume.Labels = label
				}
				api.Add("persistentvolumes", volume)
				claim(fmt.Sprintf("c-%02d", i), volume.Name, label)
			}
			api.Add("persistentvolumes", apifake.Object{Name: "asked-for"}, apifake.Object{Name: "of-nobody"})
			claim("d", "asked-for", nil)
			api.Add("pods", apifake.Object{Namespace: "a", Name: "p", Labels: label})
			s := newSetup(t, api, tt.spec, "a")
			res, got := s.run(t)
			require.Zero(t, res.Errors, got.at(joblog.Error))
			require.Equal(t, tt.claims, got.of("persistentvolumes"))

			s = s.first(t).with(asks("a.io/asks", resources("pods"), false, func(action.Identity) []string { return []string{"persistentvolumeclaims a/d"} }))
			res, got = s.run(t)
			require.Zero(t, res.Errors, got.at(joblog.Error))
			require.Equal(t, tt.claims+1, got.of("persistentvolumes"))
			require.Contains(t, got.items, "resources/persistentvolumes/cluster/asked-for.json")
		})
	}
}
