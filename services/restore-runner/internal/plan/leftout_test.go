package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// rightsListing has accounts of two namespaces, with bindings of each, and cluster-scoped objects of other kinds.
func rightsListing() *listing {
	binding := func(name, role string, accounts ...string) manifest.Item {
		refs := []manifest.Reference{{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role, Relation: reference.Grants}}
		for _, namespace := range accounts {
			refs = append(refs, manifest.Reference{Kind: "ServiceAccount", Namespace: namespace, Name: "agent", Relation: reference.GrantsTo})
		}
		return withReferences(newItems(name)[0], refs...)
	}
	items := newItems("serviceaccounts a/agent", "serviceaccounts b/agent", "serviceaccounts b/other",
		"clusterroles.rbac.authorization.k8s.io ra", "clusterroles.rbac.authorization.k8s.io rb", "clusterroles.rbac.authorization.k8s.io local",
		"storageclasses.storage.k8s.io fast", "storageclasses.storage.k8s.io slow", "nodes n")
	return listingOf(append(items,
		binding("clusterrolebindings.rbac.authorization.k8s.io a", "ra", "a"), binding("clusterrolebindings.rbac.authorization.k8s.io b", "rb", "b"),
		binding("rolebindings.rbac.authorization.k8s.io a/local", "local"))...)
}

// A restore of a namespace left the cluster-wide rights of its accounts out, which the backup had taken for them.
func TestRightsComeWithTheirAccounts(t *testing.T) {
	const bindingA, roleA, local = "clusterrolebindings.rbac.authorization.k8s.io a", "clusterroles.rbac.authorization.k8s.io ra", "clusterroles.rbac.authorization.k8s.io local"
	own := []string{bindingA, roleA, local}
	yes := true
	for name, tt := range map[string]struct {
		options options
		want    []string // of own
		chosen  bool     // they are selected themselves
	}{
		"their namespace":             {options: options{namespaces: []string{"a"}}, want: own},
		"all but another namespace":   {options: options{excluded: []string{"b"}}, want: own},
		"another namespace":           {options: options{namespaces: []string{"b"}}},
		"no cluster resources":        {options: options{namespaces: []string{"a"}, noCluster: true}},
		"all cluster resources":       {options: options{namespaces: []string{"a"}, spec: selection.Spec{IncludeClusterResources: &yes}}, want: own, chosen: true},
		"bindings are excluded":       {options: options{namespaces: []string{"a"}, spec: selection.Spec{ExcludedResources: []string{"clusterrolebindings.rbac.authorization.k8s.io"}}}, want: []string{local}},
		"roles are excluded":          {options: options{namespaces: []string{"a"}, spec: selection.Spec{ExcludedResources: []string{"clusterroles.rbac.authorization.k8s.io"}}}, want: []string{bindingA}},
		"accounts are not selected":   {options: options{namespaces: []string{"a"}, spec: selection.Spec{ExcludedResources: []string{"serviceaccounts"}}}, want: []string{local}},
		"nothing else is in the list": {options: options{namespaces: []string{"a"}, spec: selection.Spec{IncludedResources: []string{"serviceaccounts"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planOf(t, rightsListing(), tt.options)
			require.Subset(t, nodeNames(p), tt.want)
			for i := range int32(p.Len()) {
				if name := nodeNames(p)[i]; !p.Kind(i).Namespaced && name != "storageclasses.storage.k8s.io fast" {
					require.Equal(t, !tt.chosen, p.Companion(i), name)
				}
			}
			for _, object := range own {
				if len(tt.want) == 0 {
					require.NotContains(t, nodeNames(p), object)
				}
			}
		})
	}
}

// Nothing said that a filter of namespaces leaves cluster-scoped objects out.
func TestWhatTheScopeLeavesOutIsNoted(t *testing.T) {
	no := false
	const message = "cluster-scoped objects of the backup that are left out, since the restore is of some namespaces: 4 (1 clusterrolebindings.rbac.authorization.k8s.io, 1 clusterroles.rbac.authorization.k8s.io, 2 storageclasses.storage.k8s.io); spec.includeClusterResources: true restores them"
	p := planOf(t, rightsListing(), options{namespaces: []string{"a"}})
	require.Equal(t, []Note{{Node: none, Message: message}}, p.Notes())
	for name, o := range map[string]options{
		"all namespaces":       {},
		"no cluster resources": {namespaces: []string{"a"}, noCluster: true, spec: selection.Spec{IncludeClusterResources: &no}},
		"a list of resources":  {namespaces: []string{"a"}, spec: selection.Spec{IncludedResources: []string{"serviceaccounts"}}},
	} {
		require.Empty(t, planOf(t, rightsListing(), o).Notes(), name)
	}
}
