package manifest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// graphItem is an item of group example.io whose owners are given by UID.
func graphItem(kind, ns, name, uid string, owners ...string) manifest.Item {
	it := manifest.Item{Group: "example.io", Version: "v1", Kind: kind, Resource: kind + "s", Namespace: ns, Name: name, UID: uid, Preferred: true}
	for _, o := range owners {
		it.Owners = append(it.Owners, objmeta.Owner{UID: o})
	}
	return it
}

func buildGraph(t testing.TB, items ...manifest.Item) *manifest.Graph {
	t.Helper()
	slices.SortFunc(items, func(a, b manifest.Item) int { return a.Key().Compare(b.Key()) })
	g := manifest.NewGraph()
	for i := range items {
		require.NoError(t, g.Add(&items[i]))
	}
	g.Link()
	return g
}

// namesOf lists edges as "relation name".
func namesOf(edges []manifest.Edge) []string {
	names := []string{}
	for _, e := range edges {
		names = append(names, e.Relation+" "+e.Node.ObjectKey().Name)
	}
	return names
}

func mustFind(t *testing.T, g *manifest.Graph, group, kind, ns, name string) manifest.Node {
	t.Helper()
	n, ok := g.Find(manifest.ObjectKey{Group: group, Kind: kind, Namespace: ns, Name: name})
	require.True(t, ok, name)
	require.Equal(t, name, n.ObjectKey().Name)
	return n
}

func TestGraphFollowsOwnersAndReferences(t *testing.T) {
	t.Parallel()
	leaf := graphItem("b", "ns", "leaf", "2", "1", "missing", "")
	leaf.References = []manifest.Reference{
		{Group: "example.io", Kind: "c", Namespace: "ns", Name: "config", Relation: "mounts"},
		{Group: "example.io", Kind: "b", Namespace: "ns", Name: "leaf", Relation: "mounts"},
		{Kind: "c", Namespace: "ns", Name: "config", Relation: "reads"},
	}
	g := buildGraph(t, graphItem("a", "ns", "root", "1"), leaf, graphItem("c", "ns", "config", ""), graphItem("c", "ns-b", "config", ""))

	node := mustFind(t, g, "example.io", "b", "ns", "leaf")
	require.Equal(t, []string{"owns root"}, namesOf(node.Owners()))
	require.Equal(t, []string{"mounts config"}, namesOf(node.Children()))
	config := mustFind(t, g, "example.io", "c", "ns", "config")
	require.Equal(t, []string{"mounts leaf"}, namesOf(config.Owners()))
	require.Empty(t, mustFind(t, g, "example.io", "c", "ns-b", "config").Owners())
	byUID, ok := g.FindUID("2")
	require.True(t, ok)
	require.Equal(t, node, byUID)
	_, ok = g.FindUID("")
	require.False(t, ok)

	require.Equal(t, "resources/bs.example.io/namespaces/ns/leaf.json", node.String())
	require.Equal(t, manifest.Key{Kind: "example.io/v1/b", Namespace: "ns", Name: "leaf"}, node.Key())
}

func TestReachYieldsEachItemOnceTheNearestFirst(t *testing.T) {
	t.Parallel()
	named := func(item manifest.Item, names ...string) manifest.Item {
		for _, name := range names {
			item.References = append(item.References, manifest.Reference{Group: "example.io", Kind: "k", Namespace: "ns", Name: name, Relation: "names"})
		}
		return item
	}
	g := buildGraph(t, named(graphItem("k", "ns", "root", "1"), "config"), named(graphItem("k", "ns", "child", "2", "1"), "config", "far"), graphItem("k", "ns", "leaf", "3", "2"),
		named(graphItem("k", "ns", "config", "4"), "root"), named(graphItem("k", "ns", "far", "5"), "absent"), graphItem("k", "ns", "other", "6"))
	reach := func(name string, backwards bool, follow func(string) bool) []string {
		lines := []string{}
		for from, edge := range mustFind(t, g, "example.io", "k", "ns", name).Reach(backwards, follow) {
			lines = append(lines, fmt.Sprintf("%s %s %s", from.ObjectKey().Name, edge.Relation, edge.Node.ObjectKey().Name))
		}
		return lines
	}
	require.Equal(t, []string{"root owns child", "root names config", "child names far", "child owns leaf"}, reach("root", false, func(string) bool { return true }))
	require.Equal(t, []string{"root owns child", "child owns leaf"}, reach("root", false, func(relation string) bool { return relation == manifest.Owns }))
	require.Equal(t, []string{"root names config"}, reach("root", false, func(relation string) bool { return relation == "names" }))
	require.Equal(t, []string{"far names child", "child owns root", "root names config"}, reach("far", true, func(string) bool { return true }))
	for range mustFind(t, g, "example.io", "k", "ns", "root").Reach(false, func(string) bool { return true }) {
		break
	}
	both := []manifest.Node{mustFind(t, g, "example.io", "k", "ns", "far"), mustFind(t, g, "example.io", "k", "ns", "root")}
	several := []string{}
	for from, edge := range g.Reach(both, false, func(string) bool { return true }) {
		several = append(several, from.ObjectKey().Name+" "+edge.Node.ObjectKey().Name)
	}
	require.Equal(t, []string{"root child", "root config", "child leaf"}, several, "none of those that it begins with")
}

// Reach yields what a search step by step finds, each item once, none of the roots, and none before one that is nearer.
func TestReachIsTheClosureOfItsSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		items := make([]manifest.Item, 12)
		for i := range items {
			items[i] = graphItem("k", "ns", fmt.Sprintf("n%02d", i), fmt.Sprint(i))
		}
		for range random.IntN(30) {
			i, j, relation := random.IntN(len(items)), random.IntN(len(items)), []string{"reads", "names"}[random.IntN(2)]
			if random.IntN(3) == 0 {
				items[j].Owners = append(items[j].Owners, objmeta.Owner{UID: items[i].UID})
			} else {
				items[i].References = append(items[i].References, manifest.Reference{Group: "example.io", Kind: "k", Namespace: "ns", Name: items[j].Name, Relation: relation})
			}
		}
		g := buildGraph(t, items...)
		roots := []manifest.Node{mustFind(t, g, "example.io", "k", "ns", "n00"), mustFind(t, g, "example.io", "k", "ns", "n01")}
		follow := func(relation string) bool { return relation != "names" }
		distance := map[manifest.Node]int{roots[0]: 0, roots[1]: 0}
		for changed := true; changed; {
			changed = false
			for node, far := range distance {
				for _, edge := range node.Children() {
					if old, known := distance[edge.Node]; follow(edge.Relation) && (!known || old > far+1) {
						distance[edge.Node], changed = far+1, true
					}
				}
			}
		}
		last, found := 1, map[manifest.Node]bool{}
		for from, edge := range g.Reach(roots, false, follow) {
			require.False(t, found[edge.Node] || slices.Contains(roots, edge.Node), "seed %d: once, and no root", seed)
			found[edge.Node] = true
			require.Equal(t, distance[from]+1, distance[edge.Node], "seed %d", seed)
			require.GreaterOrEqual(t, distance[edge.Node], last, "seed %d: the nearest first", seed)
			last = distance[edge.Node]
			require.Contains(t, from.Children(), edge)
		}
		require.Len(t, found, len(distance)-len(roots), "seed %d", seed)
	}
}

func TestNamespacesOfAName(t *testing.T) {
	t.Parallel()
	other := graphItem("k", "other", "x", "")
	other.Group = "z.example.io"
	g := buildGraph(t, graphItem("k", "b", "x", ""), graphItem("k", "a", "x", ""), graphItem("k", "c", "y", ""), graphItem("l", "d", "x", ""), graphItem("m", "", "x", ""), other)
	require.Equal(t, []string{"a", "b"}, g.NamespacesOf(manifest.ObjectKey{Group: "example.io", Kind: "k", Namespace: "c", Name: "x"}))
	require.Equal(t, []string{""}, g.NamespacesOf(manifest.ObjectKey{Group: "example.io", Kind: "m", Name: "x"}))
	found, err := manifest.FindKinds(g.Kinds(), "m")
	require.NoError(t, err)
	require.Equal(t, []manifest.KindInfo{{Kind: "example.io/v1/m", Resource: "ms.example.io", Preferred: true}}, found)
}

// A graph of two million items may be walked in the memory of a small service.
func TestReachTakesFewBytesForAnItem(t *testing.T) {
	const items = 20_000
	g := manifest.NewGraph()
	for i := range items {
		item := graphItem("k", "ns", fmt.Sprintf("n%06d", i), fmt.Sprint(i), fmt.Sprint(i&1)) // all belong to the first two
		require.NoError(t, g.Add(&item))
	}
	g.Link()
	root, found := mustFind(t, g, "example.io", "k", "ns", "n000000"), 0
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	for range root.Reach(false, func(string) bool { return true }) {
		found++
	}
	require.Equal(t, items/2-1, found)
	require.Less(t, allocated()-before, uint64(32*found))
}

func TestGraphPrefersThePreferredVersion(t *testing.T) {
	t.Parallel()
	old, now := graphItem("a", "ns", "x", "1"), graphItem("a", "ns", "x", "1")
	old.Version, old.Preferred = "v1alpha1", false
	now.Version = "v1beta1"
	later := graphItem("a", "ns", "x", "1")
	later.Version, later.Preferred = "v2", false
	g := buildGraph(t, old, now, later, graphItem("b", "ns", "y", "2", "1"))
	want := "resources/as.example.io/namespaces/ns/x.json"
	require.Equal(t, want, mustFind(t, g, "example.io", "a", "ns", "x").String())
	require.Equal(t, want, mustFind(t, g, "example.io", "b", "ns", "y").Owners()[0].Node.String())
}

func TestGraphRefusesItemsThatExistOrComeLate(t *testing.T) {
	t.Parallel()
	g := manifest.NewGraph()
	second, first := graphItem("a", "ns", "2", ""), graphItem("a", "ns", "1", "")
	require.NoError(t, g.Add(&second))
	require.ErrorIs(t, g.Add(&second), manifest.ErrItemExists)
	require.ErrorIs(t, g.Add(&first), manifest.ErrOrder)
	long := graphItem("a", "ns", string(bytes.Repeat([]byte("x"), 1<<14)), "")
	require.ErrorIs(t, g.Add(&long), manifest.ErrCorrupt)
}

// TestGraphHasEveryEdge compares a graph of random items with what their fields say.
func TestGraphHasEveryEdge(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	items := make([]manifest.Item, 0, 400)
	for i := range cap(items) {
		it := graphItem(fmt.Sprintf("k%d", i%7), fmt.Sprintf("ns-%d", i%5), fmt.Sprintf("n%d", i), fmt.Sprint("uid", i))
		for range rnd.IntN(4) {
			to := rnd.IntN(cap(items))
			it.Owners = append(it.Owners, objmeta.Owner{UID: fmt.Sprint("uid", to)})
			to = rnd.IntN(2 * cap(items)) // half of them are nowhere
			it.References = append(it.References, manifest.Reference{Group: "example.io", Kind: fmt.Sprintf("k%d", to%7), Namespace: fmt.Sprintf("ns-%d", to%5), Name: fmt.Sprintf("n%d", to), Relation: fmt.Sprint("r", to%3)})
		}
		items = append(items, it)
	}
	owners, children := map[string][]string{}, map[string][]string{}
	link := func(parent, child, relation string) {
		if parent != child {
			owners[child] = append(owners[child], relation+" "+parent)
			children[parent] = append(children[parent], relation+" "+child)
		}
	}
	g := buildGraph(t, slices.Clone(items)...)
	for _, it := range items {
		for _, o := range it.Owners {
			link("n"+o.UID[len("uid"):], it.Name, manifest.Owns)
		}
		for _, r := range it.References {
			if _, ok := g.Find(manifest.ObjectKey{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}); ok {
				link(it.Name, r.Name, r.Relation)
			}
		}
	}
	seen := 0
	for _, it := range items {
		name, n := it.Name, mustFind(t, g, it.Group, it.Kind, it.Namespace, it.Name)
		require.ElementsMatch(t, owners[name], namesOf(n.Owners()), name)
		require.ElementsMatch(t, children[name], namesOf(n.Children()), name)
		for _, e := range n.Children() {
			seen++
			require.Contains(t, e.Node.Owners(), manifest.Edge{Node: n, Relation: e.Relation})
		}
	}
	require.Greater(t, seen, 500)
}

func TestReadGraphOfAManifest(t *testing.T) {
	t.Parallel()
	r, src := openManifest(t, writeManifest(t, sampleObjects(2500)))
	g, err := manifest.ReadGraph(t.Context(), r)
	require.NoError(t, err)
	for item, err := range r.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, item.Path, mustFind(t, g, item.Group, item.Kind, item.Namespace, item.Name).String())
	}
	src.short = true
	_, err = manifest.ReadGraph(t.Context(), r)
	require.ErrorIs(t, err, manifest.ErrCorrupt)
}

// TestGraphTakesLittleMemory holds a graph to 128 bytes for an item with an owner and a reference, at
// its peak: a million of them take 128 MiB.
func TestGraphTakesLittleMemory(t *testing.T) {
	const items = 200_000
	var before, during, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	g := manifest.NewGraph()
	for i := range items {
		it := graphItem("a", fmt.Sprintf("ns-%03d", i/1000), fmt.Sprintf("a-deployment-7c9d6b5f4-%07d", i), fmt.Sprintf("%08x-0000-4000-8000-%012d", i, i), fmt.Sprintf("%08x-0000-4000-8000-%012d", i/2, i/2))
		it.References = []manifest.Reference{{Group: "example.io", Kind: "a", Namespace: it.Namespace, Name: fmt.Sprintf("a-deployment-7c9d6b5f4-%07d", i/10), Relation: "mounts"}}
		require.NoError(t, g.Add(&it))
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	g.Link()
	runtime.ReadMemStats(&after) // with what Link needed for itself
	held := max(during.HeapAlloc, after.HeapAlloc) - before.HeapAlloc
	t.Logf("%d bytes for an item", held/items)
	require.LessOrEqual(t, held, uint64(128*items))
	n := mustFind(t, g, "example.io", "a", "ns-199", "a-deployment-7c9d6b5f4-0199999")
	require.Len(t, n.Owners(), 1)
	runtime.KeepAlive(g)
}
