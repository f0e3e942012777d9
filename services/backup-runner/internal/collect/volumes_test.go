package collect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// The volume of a collected claim needs no label, whatever brought the claim, and is stored once if
// it has one.
func TestAVolumeWithoutTheLabelComesWithItsClaim(t *testing.T) {
	label := map[string]string{"app": "only"}
	every := true
	for name, tt := range map[string]struct {
		claims int // of which every other one's volume has the label
		spec   velerov1.BackupSpec
	}{
		"few":                  {4, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludeClusterResources: &every}},
		"many":                 {3 * plan.NamedLists, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludeClusterResources: &every}},
		"one of two selectors": {4, velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"app": "other"}}, {MatchLabels: label}}, IncludeClusterResources: &every}},
		"new filters":          {4, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: label}, IncludedClusterScopedResources: []string{"*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			claim := func(name, volume string, labels map[string]string) {
				api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: name, Labels: labels, Body: map[string]any{"spec": map[string]string{"volumeName": volume}}})
			}
			for i := range tt.claims {
				volume := kubetest.Object{Name: fmt.Sprintf("pv-%02d", i)}
				if i%2 == 0 {
					volume.Labels = label
				}
				api.Add("persistentvolumes", volume)
				claim(fmt.Sprintf("c-%02d", i), volume.Name, label)
			}
			api.Add("persistentvolumes", kubetest.Object{Name: "asked-for"}, kubetest.Object{Name: "of-nobody"})
			claim("d", "asked-for", nil)
			api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: label})
			s := newSetup(t, api, tt.spec, "a")
			res, got := s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, tt.claims, got.countOf("persistentvolumes"))

			s = s.firstOwner(t).addActions(additionalAction("a.io/asks", selectResources("pods"), false, func(action.Identity) []string { return []string{"persistentvolumeclaims a/d"} }))
			res, got = s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, tt.claims+1, got.countOf("persistentvolumes"))
			require.Contains(t, got.items, "resources/persistentvolumes/cluster/asked-for.json")
		})
	}
}

// A claim whose volume is not taken is accounted for, whether an action looks at it or not. Who chose not to take volumes is not warned.
func TestClaimsAreListedAsSkipped(t *testing.T) {
	no := false
	looks := tracingAction("a.io/x", selectResources("pods", "persistentvolumeclaims"))
	for name, tt := range map[string]struct {
		choice   *bool
		actions  []action.BackupItem
		warnings int
	}{"no way to take them": {nil, nil, 2}, "an action looks at them": {nil, []action.BackupItem{looks}, 2}, "by choice": {&no, nil, 0}} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("persistentvolumes", kubetest.Object{Name: "pv1"})
			api.Add("persistentvolumeclaims", volumeClaim("a", "bound", "pv1"), kubetest.Object{Namespace: "b", Name: "unbound"})
			res, got := newSetup(t, api, velerov1.BackupSpec{SnapshotVolumes: tt.choice}).addActions(tt.actions...).runJob(t)
			volumes := map[string]string{}
			for _, rec := range got.records {
				for _, v := range rec.Volumes {
					require.True(t, v.Skipped)
					require.NotEmpty(t, v.SkippedReason)
					volumes[v.PVCName] = v.PVName
				}
			}
			require.Equal(t, map[string]string{"bound": "pv1", "unbound": ""}, volumes)
			require.Equal(t, 1, got.countOf("persistentvolumes"), "the volume comes with its claim")
			require.Zero(t, res.Errors)
			require.Equal(t, tt.warnings, res.Warnings)
			require.Len(t, got.notesAt(joblog.Warning), tt.warnings)
		})
	}
}

// A claim without its volume would wait for it indefinitely after a restore.
func TestVolumesComeWithTheirClaims(t *testing.T) {
	no := false
	for name, tt := range map[string]struct {
		spec   velerov1.BackupSpec
		claims int
		want   int
	}{
		"one by one":          {claims: 3, want: 3},
		"in one list":         {claims: plan.NamedLists + 1, want: plan.NamedLists + 1},
		"excluded by name":    {spec: velerov1.BackupSpec{ExcludedResources: []string{"persistentvolumes"}}, claims: 3},
		"no cluster objects":  {spec: velerov1.BackupSpec{IncludeClusterResources: &no}, claims: 3},
		"not among resources": {spec: velerov1.BackupSpec{IncludedResources: []string{"persistentvolumeclaims"}}, claims: 2},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			for i := range tt.claims {
				pv := fmt.Sprintf("pv-%02d", i)
				api.Add("persistentvolumes", kubetest.Object{Name: pv}, kubetest.Object{Name: "other-" + pv})
				api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("c-%02d", i),
					Body: map[string]any{"spec": map[string]string{"volumeName": pv}}})
			}
			api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "b", Name: "elsewhere",
				Body: map[string]any{"spec": map[string]string{"volumeName": "other-pv-00"}}})
			tt.spec.IncludedNamespaces = []string{"a"}
			s := newSetup(t, api, tt.spec, "a")
			_, got := s.runJob(t)
			require.Equal(t, tt.claims, got.countOf("persistentvolumeclaims"))
			require.Equal(t, tt.want, got.countOf("persistentvolumes"), got.items)
			require.NotContains(t, strings.Join(got.items, "\n"), "other-pv")
		})
	}
}
