package selection

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds is a resolver over a fixed set of kinds.
type kinds map[string]struct {
	gr         schema.GroupResource
	namespaced bool
}

func (k kinds) Resolve(name string) (schema.GroupResource, bool, bool) {
	v, ok := k[name]
	return v.gr, v.namespaced, ok
}

func groupResource(group, resource string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: resource}
}

var (
	pods, deployments = groupResource("", "pods"), groupResource("apps", "deployments")
	nodes, crds       = groupResource("", "nodes"), groupResource("apiextensions.k8s.io", "customresourcedefinitions")
	spaces            = groupResource("", "namespaces")
	known             = kinds{
		"pods": {pods, true}, "po": {pods, true}, "deploy.apps": {deployments, true}, "deployments": {deployments, true},
		"nodes": {nodes, false}, "crd": {crds, false}, "namespaces": {spaces, false},
	}
)

func TestResourceDecision(t *testing.T) {
	yes, no := true, false
	all := []string{"*"}
	tests := map[string]struct {
		spec       Spec
		namespaces []string
		in, out    []schema.GroupResource // among pods, deployments, nodes, crds, namespaces
		onDemand   bool
	}{
		"no filter takes everything": {namespaces: all, in: []schema.GroupResource{pods, deployments, nodes, crds, spaces}},
		"no filter, some namespaces": {namespaces: []string{"a"}, in: []schema.GroupResource{pods, deployments, spaces}, out: []schema.GroupResource{nodes, crds}, onDemand: true},
		"what admission always adds": {spec: Spec{ExcludedClusterScopedResources: []string{"volumesnapshotcontents.snapshot.storage.k8s.io"},
			ExcludedNamespaceScopedResources: []string{"volumesnapshots.snapshot.storage.k8s.io"}}, namespaces: all,
			in: []schema.GroupResource{pods, deployments, spaces}, out: []schema.GroupResource{nodes, crds}, onDemand: true},
		"old, short name and group": {spec: Spec{IncludedResources: []string{"po", "deploy.apps"}}, namespaces: all,
			in: []schema.GroupResource{pods, deployments}, out: []schema.GroupResource{nodes, crds, spaces}},
		"old, patterns": {spec: Spec{IncludedResources: []string{"*.APPS", "n?des"}}, namespaces: all,
			in: []schema.GroupResource{deployments, nodes}, out: []schema.GroupResource{pods, crds, spaces}},
		"old, patterns excluded": {spec: Spec{ExcludedResources: []string{"*.k8s.io", "[m-q]ods"}}, namespaces: all,
			in: []schema.GroupResource{deployments, nodes, spaces}, out: []schema.GroupResource{pods, crds}},
		"new, a pattern is of its scope": {spec: Spec{IncludedNamespaceScopedResources: []string{"*o*"}}, namespaces: all,
			in: []schema.GroupResource{pods, deployments, spaces}, out: []schema.GroupResource{nodes, crds}, onDemand: true},
		"old, excludes": {spec: Spec{ExcludedResources: []string{"pods", "crd"}}, namespaces: all,
			in: []schema.GroupResource{deployments, nodes, spaces}, out: []schema.GroupResource{pods, crds}},
		"old, cluster resources off": {spec: Spec{IncludeClusterResources: &no}, namespaces: all,
			in: []schema.GroupResource{pods, deployments}, out: []schema.GroupResource{nodes, crds, spaces}},
		"old, cluster resources on": {spec: Spec{IncludeClusterResources: &yes}, namespaces: []string{"a"},
			in: []schema.GroupResource{pods, deployments, nodes, crds, spaces}},
		"old, some namespaces": {spec: Spec{ExcludedResources: []string{"pods"}}, namespaces: []string{"a"},
			in: []schema.GroupResource{deployments, spaces}, out: []schema.GroupResource{pods, nodes, crds}, onDemand: true},
		"new, cluster star": {spec: Spec{IncludedClusterScopedResources: all}, namespaces: []string{"a"},
			in: []schema.GroupResource{pods, deployments, nodes, crds, spaces}},
		"new, cluster star excluded": {spec: Spec{ExcludedClusterScopedResources: all}, namespaces: all,
			in: []schema.GroupResource{pods, deployments}, out: []schema.GroupResource{nodes, crds, spaces}},
		"new, one namespaced kind": {spec: Spec{IncludedNamespaceScopedResources: []string{"pods"}}, namespaces: all,
			in: []schema.GroupResource{pods, spaces}, out: []schema.GroupResource{deployments, nodes, crds}, onDemand: true},
		"new, a name of the other scope selects nothing": {spec: Spec{IncludedNamespaceScopedResources: []string{"nodes"}}, namespaces: all,
			in: []schema.GroupResource{spaces}, out: []schema.GroupResource{pods, deployments, nodes, crds}, onDemand: true},
		"new, namespaced star excluded": {spec: Spec{ExcludedNamespaceScopedResources: all, IncludedClusterScopedResources: []string{"nodes"}}, namespaces: all,
			in: []schema.GroupResource{nodes, spaces}, out: []schema.GroupResource{pods, deployments, crds}, onDemand: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := NewFilter(tt.spec, tt.namespaces, known)
			require.NoError(t, err)
			for _, r := range tt.in {
				require.True(t, f.Resource(r, r == pods || r == deployments), "%s is selected", r)
			}
			for _, r := range tt.out {
				require.False(t, f.Resource(r, r == pods || r == deployments), "%s is not selected", r)
			}
			require.Equal(t, tt.onDemand, f.DefinitionsOnDemand(), "definitions on demand")
		})
	}
}

// A volume that comes with a claim, or what an action names, is taken as far as Velero 1.18 takes it.
func TestWhatIsTakenBesideTheListed(t *testing.T) {
	yes := true
	for name, tt := range map[string]struct {
		spec Spec
		want bool
	}{
		"no filter":                        {Spec{}, true},
		"some resources":                   {Spec{IncludedResources: []string{"pods"}}, false},
		"some resources, this among them":  {Spec{IncludedResources: []string{"pods", "nodes"}}, true},
		"some resources, and all clusters": {Spec{IncludedResources: []string{"pods"}, IncludeClusterResources: &yes}, true},
		"others excluded":                  {Spec{ExcludedResources: []string{"pods"}}, true},
		"excluded by a pattern":            {Spec{ExcludedResources: []string{"no*"}, IncludeClusterResources: &yes}, false},
		"newer lists":                      {Spec{IncludedNamespaceScopedResources: []string{"pods"}}, true},
	} {
		f, err := NewFilter(tt.spec, []string{"a"}, known)
		require.NoError(t, err)
		require.Equal(t, tt.want, !f.ExcludesResource(nodes, false), name)
	}
}

// A mistyped name in a list of excluded resources stored what was to stay out, without a word.
func TestUnmatchedNamesAreReported(t *testing.T) {
	dead := []schema.GroupVersion{{Group: "example.com", Version: "v1"}}
	for name, tt := range map[string]struct {
		spec   Spec
		silent []schema.GroupVersion
		want   []string
	}{
		"known names and patterns": {spec: Spec{IncludedResources: []string{"po", "*.example.com"}, ExcludedResources: []string{"deploy.apps"}}},
		"what validation adds":     {spec: Spec{ExcludedResources: append([]string{VolumeSnapshots, VolumeSnapshotContents}, NonRestorable...)}},
		"in any list": {spec: Spec{IncludedResources: []string{"Podz"}, ExcludedResources: []string{"secretz", "w.example.com"}},
			want: []string{`spec.includedResources: "Podz" matches nothing: why`, `spec.excludedResources: "secretz" matches nothing: why`, `spec.excludedResources: "w.example.com" matches nothing: why`}},
		"of a group that does not answer": {spec: Spec{ExcludedResources: []string{"secretz", "w.example.com", "w.v1.example.com", "w.example.org"}}, silent: dead,
			want: []string{`spec.excludedResources: "w.example.org" matches nothing: why`}},
		"of the other scope": {spec: Spec{IncludedNamespaceScopedResources: []string{"nodes"}, ExcludedClusterScopedResources: []string{"pods"}},
			want: []string{`spec.excludedClusterScopedResources: "pods" matches nothing: the resource is of the other scope; name it in spec.excludedNamespaceScopedResources`,
				`spec.includedNamespaceScopedResources: "nodes" matches nothing: the resource is of the other scope; name it in spec.includedClusterScopedResources`}},
	} {
		f, err := NewFilter(tt.spec, []string{"*"}, known)
		require.NoError(t, err)
		require.Equal(t, tt.want, f.Unmatched(tt.silent, "why"), name)
	}
}

func TestUnknownNamesStayLiteral(t *testing.T) {
	f, err := NewFilter(Spec{IncludedResources: []string{"Widgets.example.com"}}, []string{"*"}, known)
	require.NoError(t, err)
	require.True(t, f.Resource(groupResource("example.com", "widgets"), true))
}

func TestItem(t *testing.T) {
	f, err := NewFilter(Spec{}, []string{"b", "a"}, known)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, f.Namespaces())
	require.True(t, f.Item(Object{Namespace: "a", Name: "x"}))
	require.True(t, f.Item(Object{Name: "cluster-scoped"}))
	require.False(t, f.Item(Object{Namespace: "c", Name: "x"}))
	require.False(t, f.Item(Object{Namespace: "a", Deleting: true}))
	require.False(t, f.Item(Object{Namespace: "a", Labels: labels.Set{LabelExclude: "true"}}))
	require.True(t, f.Item(Object{Namespace: "a", Labels: labels.Set{LabelExclude: "false"}}))
}

func TestNamespaceObject(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: labels.Set{"app": "x"}}
	labelled := labels.Set{"app": "x"}
	tests := map[string]struct {
		spec              Spec
		namespaces        []string
		object            Object
		inactive, holding bool
		want              bool
	}{
		"all":                         {namespaces: []string{"*"}, object: Object{Name: "a"}, want: true},
		"named":                       {namespaces: []string{"a"}, object: Object{Name: "a"}, want: true},
		"not named":                   {namespaces: []string{"b"}, object: Object{Name: "a"}},
		"terminating":                 {namespaces: []string{"*"}, object: Object{Name: "a"}, inactive: true},
		"excluded by label":           {namespaces: []string{"*"}, object: Object{Name: "a", Labels: labels.Set{LabelExclude: "true"}}, holding: true},
		"all but a selector":          {spec: Spec{LabelSelector: selector}, namespaces: []string{"*"}, object: Object{Name: "a"}},
		"all, selector matches":       {spec: Spec{LabelSelector: selector}, namespaces: []string{"*"}, object: Object{Name: "a", Labels: labelled}, want: true},
		"all, selector, holds items":  {spec: Spec{LabelSelector: selector}, namespaces: []string{"*"}, object: Object{Name: "a"}, holding: true, want: true},
		"all but some, selector":      {spec: Spec{LabelSelector: selector}, namespaces: []string{"!b", "*"}, object: Object{Name: "a"}},
		"named, selector no match":    {spec: Spec{LabelSelector: selector}, namespaces: []string{"a"}, object: Object{Name: "a"}},
		"named, selector matches":     {spec: Spec{LabelSelector: selector}, namespaces: []string{"a"}, object: Object{Name: "a", Labels: labelled}, want: true},
		"its kind is not selected":    {spec: Spec{IncludedResources: []string{"pods"}}, namespaces: []string{"a"}, object: Object{Name: "a"}},
		"its kind is not, but holds":  {spec: Spec{IncludedResources: []string{"pods"}}, namespaces: []string{"a"}, object: Object{Name: "a"}, holding: true, want: true},
		"not named, selector matches": {spec: Spec{LabelSelector: selector}, namespaces: []string{"b"}, object: Object{Name: "a", Labels: labelled}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := NewFilter(tt.spec, tt.namespaces, known)
			require.NoError(t, err)
			require.Equal(t, tt.want, f.NamespaceObject(tt.object, !tt.inactive, tt.holding))
		})
	}
}

func TestItemDoesNotAllocate(t *testing.T) {
	f, err := NewFilter(Spec{}, []string{"a", "b"}, known)
	require.NoError(t, err)
	o := Object{Namespace: "a", Name: "x", Labels: labels.Set{"k": "v"}}
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Item(o) }))
}

func TestNewFilterRefusesMixedStyles(t *testing.T) {
	_, err := NewFilter(Spec{IncludedResources: []string{"pods"}, ExcludedClusterScopedResources: []string{"x"}}, nil, known)
	require.ErrorIs(t, err, ErrMixedFilterStyles)
}

// What cannot be discovered is missing from a backup only if a filter may select it.
func TestMayTakeFromAGroupThatDoesNotAnswer(t *testing.T) {
	no, all, some := false, []string{"*"}, []string{"a"}
	dead := schema.GroupVersion{Group: "metrics.example.com", Version: "v1"}
	tests := map[string]struct {
		spec       Spec
		namespaces []string
		want       bool
	}{
		"no filter":                      {namespaces: all, want: true},
		"some namespaces":                {namespaces: some, want: true},
		"old, everything":                {spec: Spec{IncludedResources: all}, namespaces: some, want: true},
		"old, no cluster resources":      {spec: Spec{IncludeClusterResources: &no}, namespaces: all, want: true},
		"old, some are left out":         {spec: Spec{ExcludedResources: []string{"pods"}}, namespaces: all, want: true},
		"old, one of it is left out":     {spec: Spec{ExcludedResources: []string{"foos.metrics.example.com"}}, namespaces: all, want: true},
		"old, its group is left out":     {spec: Spec{ExcludedResources: []string{"*.Metrics.example.com"}}, namespaces: all},
		"old, groups are left out":       {spec: Spec{IncludedResources: []string{"foos", "pods"}, ExcludedResources: []string{"*.example.com"}}, namespaces: some},
		"old, some of it are left out":   {spec: Spec{ExcludedResources: []string{"f*.metrics.example.com"}}, namespaces: all, want: true},
		"old, another group is left out": {spec: Spec{ExcludedResources: []string{"*.other.example.com"}}, namespaces: all, want: true},
		"new, its group is left out": {spec: Spec{IncludedClusterScopedResources: []string{"foos"}, ExcludedClusterScopedResources: []string{"*.example.com"},
			ExcludedNamespaceScopedResources: []string{"*.example.com"}}, namespaces: all},
		"new, its cluster-scoped resources are left out": {spec: Spec{ExcludedClusterScopedResources: []string{"*.example.com"}}, namespaces: all, want: true},
		"old, all left out":               {spec: Spec{IncludedResources: []string{"foos"}, ExcludedResources: all}, namespaces: all},
		"old, others":                     {spec: Spec{IncludedResources: []string{"pods", "deploy.apps"}}, namespaces: all},
		"old, a plain name":               {spec: Spec{IncludedResources: []string{"pods", "foos"}}, namespaces: all, want: true},
		"old, its full name":              {spec: Spec{IncludedResources: []string{"Foos.metrics.example.com"}}, namespaces: all, want: true},
		"old, with a version":             {spec: Spec{IncludedResources: []string{"foos.v1.metrics.example.com"}}, namespaces: all, want: true},
		"old, the beginning of the group": {spec: Spec{IncludedResources: []string{"foos.metrics"}}, namespaces: all, want: true},
		"old, a pattern of it":            {spec: Spec{IncludedResources: []string{"*.Example.com"}}, namespaces: all, want: true},
		"old, a pattern of its full name": {spec: Spec{IncludedResources: []string{"f*s.metrics.example.com"}}, namespaces: all, want: true},
		"old, a pattern of plain names":   {spec: Spec{IncludedResources: []string{"foo*"}}, namespaces: all, want: true},
		"old, a pattern of another group": {spec: Spec{IncludedResources: []string{"*.example.org"}}, namespaces: all},
		"old, of another group":           {spec: Spec{IncludedResources: []string{"foos.example.com"}}, namespaces: all},
		"new, others":                     {spec: Spec{IncludedNamespaceScopedResources: []string{"pods"}}, namespaces: all},
		"new, only cluster-scoped": {spec: Spec{IncludedClusterScopedResources: []string{"nodes"},
			ExcludedNamespaceScopedResources: all}, namespaces: all},
		"new, named as namespaced":     {spec: Spec{IncludedNamespaceScopedResources: []string{"foos"}}, namespaces: some, want: true},
		"new, named as cluster-scoped": {spec: Spec{IncludedClusterScopedResources: []string{"foos"}, ExcludedNamespaceScopedResources: all}, namespaces: some, want: true},
		"new, all cluster-scoped":      {spec: Spec{IncludedClusterScopedResources: all, IncludedNamespaceScopedResources: []string{"pods"}}, namespaces: some, want: true},
		"new, all namespaced":          {spec: Spec{ExcludedClusterScopedResources: all}, namespaces: some, want: true},
		"new, nothing": {spec: Spec{IncludedClusterScopedResources: []string{"foos"}, ExcludedClusterScopedResources: all,
			ExcludedNamespaceScopedResources: all}, namespaces: all},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := NewFilter(tt.spec, tt.namespaces, known)
			require.NoError(t, err)
			require.Equal(t, tt.want, f.MayTakeFrom(dead))
		})
	}
}

// Nothing said that a backup of namespaces leaves cluster-scoped objects out.
func TestIsOfNamespaces(t *testing.T) {
	no, all, some := false, []string{"*"}, []string{"a"}
	for name, tt := range map[string]struct {
		spec       Spec
		namespaces []string
		want       bool
	}{
		"all":                {namespaces: all},
		"some":               {namespaces: some, want: true},
		"all but some":       {namespaces: []string{"!b", "*"}, want: true},
		"excluded resources": {spec: Spec{ExcludedResources: []string{"pods"}}, namespaces: some, want: true},
		"new, excluded":      {spec: Spec{ExcludedClusterScopedResources: []string{"nodes"}}, namespaces: some, want: true},
		"asked not to":       {spec: Spec{IncludeClusterResources: &no}, namespaces: some},
		"listed":             {spec: Spec{IncludedResources: []string{"pods"}}, namespaces: some},
		"new, listed":        {spec: Spec{IncludedClusterScopedResources: []string{"nodes"}}, namespaces: some},
	} {
		f, err := NewFilter(tt.spec, tt.namespaces, known)
		require.NoError(t, err)
		require.Equal(t, tt.want, f.IsOfNamespaces(), name)
	}
}

// Admission stores all namespaces but those with the exclude label as what is left out: one that is
// made afterwards is collected.
func TestAllNamespacesButSome(t *testing.T) {
	f, err := NewFilter(Spec{}, []string{"!a", "!b", "*"}, known)
	require.NoError(t, err)
	require.True(t, f.AllButSome())
	require.False(t, f.AllNamespaces())
	require.Empty(t, f.Namespaces())
	require.False(t, f.Namespace("a"))
	require.False(t, f.Item(Object{Namespace: "b", Name: "x"}))
	require.True(t, f.Item(Object{Namespace: "new", Name: "x"}))
	require.True(t, f.NamespaceObject(Object{Name: "new"}, true, false))
	require.False(t, f.NamespaceObject(Object{Name: "a"}, true, false))
}
