package plan

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// listing is a source of items; the error, if any, comes last.
type listing struct {
	items []manifest.Item
	err   error
}

func (l *listing) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for _, i := range l.items {
			if !yield(i, nil) {
				return
			}
		}
		if l.err != nil {
			yield(manifest.Item{}, l.err)
		}
	}
}

// newItem is "deployments.apps a/x", or "namespaces a" for cluster-scoped ones.
func newItem(what string, owners ...objmeta.Owner) manifest.Item {
	gr, name, _ := strings.Cut(what, " ")
	resource, group, _ := strings.Cut(gr, ".")
	namespace, plain, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, plain = "", name
	}
	kind := strings.ToUpper(resource[:1]) + strings.TrimSuffix(resource[1:], "s")
	for known := range roles { // camel case
		if plural := strings.ToLower(known.Kind); known.Group == group && (plural == resource || plural+"s" == resource || strings.TrimSuffix(plural, "y")+"ies" == resource) {
			kind = known.Kind
		}
	}
	return manifest.Item{
		Group: group, Version: "v1", Kind: kind, Resource: resource, Namespace: namespace, Name: plain, UID: "uid of " + what,
		Owners: owners, Preferred: true, Path: standardPath(gr, namespace, plain), Size: 10,
	}
}

func newItems(what ...string) []manifest.Item {
	var out []manifest.Item
	for _, w := range what {
		out = append(out, newItem(w))
	}
	return out
}

func ownerReference(apiVersion, kind, by string, controller bool) objmeta.Owner {
	return objmeta.Owner{APIVersion: apiVersion, Kind: kind, Name: by, UID: "uid of " + by, Controller: controller}
}

// literal resolves no names: they stay literal.
type literal struct{}

func (literal) Resolve(string) (schema.GroupResource, bool, bool) {
	return schema.GroupResource{}, false, false
}

type options struct {
	spec       selection.Spec
	namespaces []string
	excluded   []string
	parts      *Parts
	mapping    map[string]string
	claim      func(string) (string, string)
	noCluster  bool
	order      restoreorder.Order
	paused     func(schema.GroupKind) bool
	bodies     map[string]string // by "resource namespace/name"; of Services their ports: "kept", "chosen"
}

func (o options) read(item manifest.Item) ([]byte, error) {
	body, ok := o.bodies[item.GroupResource()+" "+item.Namespace+"/"+item.Name]
	if !ok {
		return nil, errors.New("cannot be read")
	}
	return []byte(body), nil
}

func planOf(t testing.TB, l *listing, o options) *Plan {
	t.Helper()
	survey, err := ReadSurvey(t.Context(), l)
	require.NoError(t, err)
	filter, err := selection.NewFilter(o.spec, selection.ExpandNamespaces(o.namespaces, o.excluded, survey.Namespaces), survey.Resolver(literal{}))
	require.NoError(t, err)
	p, err := Build(t.Context(), l, Config{Filter: filter, Parts: o.parts, Mapping: o.mapping, Claim: o.claim, NoClusterResources: o.noCluster, Order: o.order, Paused: o.paused, Read: o.read,
		Ports: func(body []byte) (kept, chosen bool) { return string(body) == "kept", string(body) == "chosen" }})
	require.NoError(t, err)
	return p
}

func nodeNames(p *Plan) []string {
	var out []string
	for i := range int32(p.Len()) {
		name := p.Name(i)
		if ns := p.Target(i); ns != "" {
			name = ns + "/" + name
		}
		out = append(out, p.Kind(i).String()+" "+name)
	}
	return out
}

func TestOrderIsVelerosList(t *testing.T) {
	p := planOf(t, &listing{items: newItems("services a/s", "packageinstalls.packaging.carvel.dev a/p", "deployments.apps b/y", "deployments.apps a/z",
		"validatingwebhookconfigurations.admissionregistration.k8s.io w", "widgets.example.com a/w", "pods a/p", "namespaces a", "namespaces b",
		"secrets a/s", "customresourcedefinitions.apiextensions.k8s.io c", "ingresses.networking.k8s.io a/i")}, options{})
	require.Equal(t, []string{"customresourcedefinitions.apiextensions.k8s.io c", "namespaces a", "namespaces b", "secrets a/s", "pods a/p",
		"services a/s", "deployments.apps a/z", "deployments.apps b/y", "ingresses.networking.k8s.io a/i",
		"validatingwebhookconfigurations.admissionregistration.k8s.io w", "widgets.example.com a/w", "packageinstalls.packaging.carvel.dev a/p"}, nodeNames(p))
	require.Equal(t, []int32{0}, p.Of(Definition))
	require.Equal(t, []int32{1, 2}, p.Of(NamespaceObject))
}

func TestSelection(t *testing.T) {
	everything := newItems("namespaces a", "namespaces b", "namespaces empty", "configmaps a/c", "configmaps b/c", "widgets.example.com a/w",
		"nodes n", "events a/e", "persistentvolumes pv", "persistentvolumes other", "persistentvolumeclaims a/claim", "clusterroles.rbac.authorization.k8s.io r")
	for i := range everything {
		if everything[i].Name == "c" && everything[i].Namespace == "a" {
			everything[i].Labels = map[string]string{"app": "x"}
		}
	}
	duplicate, copyOfC := newItem("configmaps a/c"), newItem("configmaps a/c")
	duplicate.Labels, copyOfC.Preferred = map[string]string{"app": "x"}, false
	l := &listing{items: append(everything, duplicate, copyOfC)}
	claim := func(volume string) (string, string) { return map[string]string{"pv": "a"}[volume], "claim" }
	no := false
	tests := map[string]struct {
		o    options
		want []string
	}{
		"everything": {options{}, []string{"namespaces a", "namespaces b", "namespaces empty", "persistentvolumes other", "persistentvolumes pv",
			"persistentvolumeclaims a/claim", "clusterroles.rbac.authorization.k8s.io r", "configmaps a/c", "configmaps b/c", "widgets.example.com a/w"}},
		"one namespace brings its claims' volumes": {options{namespaces: []string{"a"}, claim: claim},
			[]string{"namespaces a", "persistentvolumes pv", "persistentvolumeclaims a/claim", "configmaps a/c", "widgets.example.com a/w"}},
		"one namespace, no cluster resources": {options{namespaces: []string{"a"}, claim: claim, noCluster: true, spec: selection.Spec{IncludeClusterResources: &no}},
			[]string{"namespaces a", "persistentvolumeclaims a/claim", "configmaps a/c", "widgets.example.com a/w"}},
		"pattern": {options{namespaces: []string{"*"}, excluded: []string{"e*", "b"}},
			[]string{"namespaces a", "persistentvolumeclaims a/claim", "configmaps a/c", "widgets.example.com a/w"}},
		"kind of the backup, by its plain name": {options{spec: selection.Spec{IncludedResources: []string{"widgets"}}}, []string{"namespaces a", "widgets.example.com a/w"}},
		"excluded kind": {options{namespaces: []string{"a"}, spec: selection.Spec{ExcludedResources: []string{"configmaps", "widget.example.com"}}},
			[]string{"namespaces a", "persistentvolumeclaims a/claim"}},
		"labels":  {options{spec: selection.Spec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}, []string{"namespaces a", "configmaps a/c"}},
		"mapping": {options{namespaces: []string{"b"}, mapping: map[string]string{"b": "z"}}, []string{"namespaces b", "configmaps z/c"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := planOf(t, l, tt.o)
			require.Equal(t, tt.want, nodeNames(p))
			for i := range int32(p.Len()) {
				got := p.Item(i)
				require.True(t, slices.ContainsFunc(l.items, func(m manifest.Item) bool { return m.Path == got.Path && m.Kind == got.Kind && m.Size == got.Size }))
			}
		})
	}
}

func TestBadListing(t *testing.T) {
	broken := errors.New("broken")
	_, err := ReadSurvey(t.Context(), &listing{err: broken})
	require.ErrorIs(t, err, broken)
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, literal{})
	require.NoError(t, err)
	_, err = Build(t.Context(), &listing{err: broken}, Config{Filter: filter})
	require.ErrorIs(t, err, broken)
	_, err = Build(t.Context(), &listing{items: []manifest.Item{{Path: "p", Preferred: true}}}, Config{Filter: filter})
	require.ErrorContains(t, err, `"p"`)
}

// waitsFor reports whether the graph makes one node wait, directly or not, for another.
func waitsFor(t *testing.T, p *Plan, first, second string) bool {
	t.Helper()
	all := nodeNames(p)
	from, to := slices.Index(all, first), slices.Index(all, second)
	require.GreaterOrEqual(t, from, 0, first)
	require.GreaterOrEqual(t, to, 0, second)
	stack, seen := []int32{int32(from)}, map[int32]bool{}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if v == int32(to) {
			return true
		}
		if !seen[v] {
			seen[v] = true
			stack = append(stack, p.Graph().Successors(v)...)
		}
	}
	return false
}

func TestWorkloadsAreAdopted(t *testing.T) {
	p := planOf(t, &listing{items: []manifest.Item{
		newItem("deployments.apps a/d"), newItem("replicasets.apps a/rs", ownerReference("apps/v1", "Deployment", "deployments.apps a/d", true)),
		newItem("pods a/p", ownerReference("apps/v1", "ReplicaSet", "replicasets.apps a/rs", true)),
		newItem("widgets.example.com a/owner"), newItem("configmaps a/c", ownerReference("example.com/v1", "Widget", "widgets.example.com a/owner", true)),
		newItem("cronjobs.batch a/cron"), newItem("jobs.batch a/job", ownerReference("batch/v1", "CronJob", "cronjobs.batch a/cron", true)),
		newItem("pods a/jobpod", ownerReference("batch/v1", "Job", "jobs.batch a/job", true)),
		newItem("pods a/custom", ownerReference("example.com/v1", "Widget", "widgets.example.com a/owner", true)),
		newItem("statefulsets.apps a/st"), newItem("persistentvolumeclaims a/data", ownerReference("apps/v1", "StatefulSet", "statefulsets.apps a/st", false)),
	}}, options{})
	require.True(t, waitsFor(t, p, "pods a/p", "replicasets.apps a/rs"))
	require.True(t, waitsFor(t, p, "replicasets.apps a/rs", "deployments.apps a/d"))
	require.True(t, waitsFor(t, p, "configmaps a/c", "widgets.example.com a/owner"), "what it would make comes first")
	require.True(t, waitsFor(t, p, "pods a/custom", "widgets.example.com a/owner"), "whatever makes pods comes after them")
	require.True(t, waitsFor(t, p, "jobs.batch a/job", "cronjobs.batch a/cron"))
	require.True(t, waitsFor(t, p, "persistentvolumeclaims a/data", "statefulsets.apps a/st"))
	require.False(t, waitsFor(t, p, "jobs.batch a/job", "pods a/jobpod"))
	require.Empty(t, p.Notes())
}

func TestGates(t *testing.T) {
	p := planOf(t, &listing{items: newItems("serviceaccounts a/sa", "serviceaccounts b/sa", "pods a/p", "pods b/p", "secrets a/s", "priorityclasses.scheduling.k8s.io c",
		"endpoints a/e", "services a/s", "storageclasses.storage.k8s.io sc", "persistentvolumes v", "persistentvolumeclaims b/c")}, options{})
	require.True(t, waitsFor(t, p, "serviceaccounts a/sa", "pods a/p"))
	require.False(t, waitsFor(t, p, "serviceaccounts a/sa", "pods b/p"), "other namespaces do not wait")
	require.True(t, waitsFor(t, p, "serviceaccounts a/sa", "secrets a/s"))
	require.True(t, waitsFor(t, p, "priorityclasses.scheduling.k8s.io c", "pods b/p"))
	require.True(t, waitsFor(t, p, "services a/s", "endpoints a/e"))
	require.True(t, waitsFor(t, p, "storageclasses.storage.k8s.io sc", "persistentvolumeclaims b/c"))
	require.Greater(t, p.Graph().Vertices(), p.Len())
}

func TestOwnerCyclesAreBroken(t *testing.T) {
	p := planOf(t, &listing{items: []manifest.Item{
		newItem("widgets.example.com a/one", ownerReference("example.com/v1", "Widget", "widgets.example.com a/two", false)),
		newItem("widgets.example.com a/two", ownerReference("example.com/v1", "Widget", "widgets.example.com a/three", false)),
		newItem("widgets.example.com a/three", ownerReference("example.com/v1", "Widget", "widgets.example.com a/one", false)),
		newItem("widgets.example.com a/self", ownerReference("example.com/v1", "Widget", "widgets.example.com a/self", false)),
		// The widget's account comes before the widget's pod, and both before the widget.
		newItem("serviceaccounts b/sa", ownerReference("example.com/v1", "Widget", "widgets.example.com b/w", false)),
		newItem("widgets.example.com b/w"), newItem("pods b/p", ownerReference("example.com/v1", "Widget", "widgets.example.com b/w", true)),
	}}, options{})
	require.Len(t, p.Notes(), 1)
	for _, n := range p.Notes() {
		require.True(t, n.Warning)
		require.Contains(t, n.Message, "owner")
	}
	require.True(t, waitsFor(t, p, "serviceaccounts b/sa", "pods b/p"), "the account goes first")
	require.True(t, waitsFor(t, p, "pods b/p", "widgets.example.com b/w"))
	requireAcyclic(t, p)
}

func requireAcyclic(t *testing.T, p *Plan) {
	t.Helper()
	indegree := p.Graph().Indegree()
	var ready []int32
	for v, n := range indegree {
		if n == 0 {
			ready = append(ready, int32(v))
		}
	}
	done := 0
	for ; len(ready) > 0; done++ {
		v := ready[0]
		ready = ready[1:]
		for _, s := range p.Graph().Successors(v) {
			if indegree[s]--; indegree[s] == 0 {
				ready = append(ready, s)
			}
		}
	}
	require.Equal(t, p.Graph().Vertices(), done)
}

// TestTangle builds a graph in which everything owns everything.
func TestTangle(t *testing.T) {
	var all []manifest.Item
	var owners []objmeta.Owner
	name := func(i int) string { return "widgets.example.com a/" + strings.Repeat("x", i+1) }
	for i := range 60 {
		owners = append(owners, ownerReference("example.com/v1", "Widget", name(i), false))
	}
	for i := range 60 {
		all = append(all, newItem(name(i), owners...))
	}
	p := planOf(t, &listing{items: all}, options{})
	requireAcyclic(t, p)
	require.NotEmpty(t, p.Notes())
}

func TestOwnersOutsideTheRestore(t *testing.T) {
	p := planOf(t, &listing{items: []manifest.Item{newItem("configmaps a/c", ownerReference("v1", "Widget", "widgets.example.com a/absent", true))}}, options{})
	_, ok := p.Owner("uid of widgets.example.com a/absent")
	require.False(t, ok)
	require.False(t, p.Owns(0))
}
