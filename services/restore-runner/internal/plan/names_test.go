package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
)

// withNames returns an item that names others.
func withNames(i manifest.Item, relation string, what ...string) manifest.Item {
	for _, w := range what {
		named := newItem(w)
		i.References = append(i.References, manifest.Reference{Group: named.Group, Kind: named.Kind, Namespace: named.Namespace, Name: named.Name, Relation: relation})
	}
	return i
}

// Custom resources of one stage came in alphabetical order: webhooks refused a ClusterBootstrap before
// what it names, and a Certificate came before its issuer.
func TestWhatAnObjectNamesComesBeforeIt(t *testing.T) {
	p := planOf(t, listingOf(
		withNames(newItem("alphas.example.com a/x"), reference.Names, "zetas.example.com a/z", "zetas.example.com b/z", "clusterzetas.example.com c", "secrets b/s", "deployments.apps a/d",
			"zetas.example.com a/gone", "gone.example.com a/z", "alphas.example.com a/x", "namespaces a"),
		withNames(newItem("horizontalpodautoscalers.autoscaling a/h"), reference.Scales, "deployments.apps a/d"),
		newItem("zetas.example.com a/z"), newItem("zetas.example.com b/z"), newItem("clusterzetas.example.com c"), newItem("secrets b/s"), newItem("secrets b/t"),
		newItem("deployments.apps a/d"), newItem("zetas.example.com a/other"), newItem("namespaces a"),
	), options{})
	for _, first := range []string{"zetas.example.com a/z", "zetas.example.com b/z", "clusterzetas.example.com c", "secrets b/s", "deployments.apps a/d"} {
		require.True(t, waitsFor(t, p, first, "alphas.example.com a/x"), first)
	}
	require.True(t, waitsFor(t, p, "deployments.apps a/d", "horizontalpodautoscalers.autoscaling a/h"))
	require.False(t, waitsFor(t, p, "zetas.example.com a/other", "alphas.example.com a/x"))
	require.Empty(t, p.Notes())
	requireAcyclic(t, p)
}

// What has rules of its own, or comes as early as it can, does not wait for what it names.
func TestNamesThatOrderNothing(t *testing.T) {
	p := planOf(t, listingOf(
		withNames(newItem("volumesnapshots.snapshot.storage.k8s.io a/snap"), reference.Claims, "persistentvolumeclaims a/c"),
		withNames(newItem("authorizationpolicies.security.istio.io a/deny"), reference.AttachedTo, "gateways.example.com a/g"),
		withNames(newItem("serviceaccounts a/sa"), reference.Holds, "secrets a/token"),
		withNames(newItem("widgets.example.com a/w"), reference.DefinedBy, "gateways.example.com a/g"),
		newItem("persistentvolumeclaims a/c"), newItem("gateways.example.com a/g"), newItem("secrets a/token"),
	), options{})
	require.False(t, waitsFor(t, p, "persistentvolumeclaims a/c", "volumesnapshots.snapshot.storage.k8s.io a/snap"))
	require.True(t, waitsFor(t, p, "authorizationpolicies.security.istio.io a/deny", "gateways.example.com a/g"))
	require.True(t, waitsFor(t, p, "serviceaccounts a/sa", "secrets a/token"))
	require.False(t, waitsFor(t, p, "gateways.example.com a/g", "widgets.example.com a/w"))
	require.Empty(t, p.Notes())
	for order, waits := range map[restoreorder.Order]bool{"": true, restoreorder.Stages: true, restoreorder.Owners: false} {
		p := planOf(t, listingOf(withNames(newItem("alphas.example.com a/x"), reference.Names, "zetas.example.com a/z"), newItem("zetas.example.com a/z")), options{order: order})
		require.Equal(t, waits, waitsFor(t, p, "zetas.example.com a/z", "alphas.example.com a/x"), order)
	}
}

// managementCluster are objects of Cluster API that own and name one another.
func managementCluster() []manifest.Item {
	const cluster, api = "clusters.cluster.x-k8s.io m/c", "cluster.x-k8s.io/v1beta2"
	newOwned := func(what, apiVersion, kind, by string) manifest.Item {
		return newItem(what, ownerReference(apiVersion, kind, by, true))
	}
	machine := withNames(withNames(newOwned("machines.cluster.x-k8s.io m/m", api, "Cluster", cluster), reference.BelongsTo, cluster),
		reference.BuiltOn, "dockermachines.infrastructure.cluster.x-k8s.io m/m", "kubeadmconfigs.bootstrap.cluster.x-k8s.io m/m")
	binding := withNames(newOwned("clusterresourcesetbindings.addons.cluster.x-k8s.io m/c", "addons.cluster.x-k8s.io/v1beta2", "Clusterresourceset", "clusterresourcesets.addons.cluster.x-k8s.io m/crs"),
		reference.BelongsTo, cluster, "clusterresourcesets.addons.cluster.x-k8s.io m/crs")
	class := withNames(newItem("clusterclasses.cluster.x-k8s.io m/quick"), reference.MadeFrom, "dockerclustertemplates.infrastructure.cluster.x-k8s.io m/quick")
	template := newItem("dockerclustertemplates.infrastructure.cluster.x-k8s.io m/quick")
	class.Kind, template.Kind = "ClusterClass", "DockerClusterTemplate"
	class.References[0].Kind = template.Kind
	root := withNames(withNames(newItem(cluster), reference.BuiltOn, "dockerclusters.infrastructure.cluster.x-k8s.io m/c"), reference.MadeFrom, "clusterclasses.cluster.x-k8s.io m/quick")
	root.References[1].Kind = class.Kind
	return []manifest.Item{
		root, class, template, machine, binding,
		withNames(newItem("clusterresourcesets.addons.cluster.x-k8s.io m/crs"), reference.Reads, "secrets m/addon"),
		newOwned("dockerclusters.infrastructure.cluster.x-k8s.io m/c", api, "Cluster", cluster),
		newOwned("dockermachines.infrastructure.cluster.x-k8s.io m/m", api, "Machine", "machines.cluster.x-k8s.io m/m"),
		newOwned("kubeadmconfigs.bootstrap.cluster.x-k8s.io m/m", api, "Machine", "machines.cluster.x-k8s.io m/m"),
		newOwned("secrets m/kubeconfig", api, "Cluster", cluster), newOwned("secrets m/data", "bootstrap.cluster.x-k8s.io/v1beta2", "Kubeadmconfig", "kubeadmconfigs.bootstrap.cluster.x-k8s.io m/m"),
		newOwned("secrets m/addon", "addons.cluster.x-k8s.io/v1beta2", "Clusterresourceset", "clusterresourcesets.addons.cluster.x-k8s.io m/crs"),
	}
}

// Objects name what they own, and what owns them: owner references decide there, and no cycle is left to
// warn of, whether the Cluster is created paused or not.
func TestOwnersDecideAboutWhatObjectsNameOfTheirOwn(t *testing.T) {
	const cluster = "clusters.cluster.x-k8s.io m/c"
	for _, paused := range []bool{false, true} {
		p := planOf(t, listingOf(managementCluster()...), options{paused: func(kind schema.GroupKind) bool { return paused && kind.Kind == "Cluster" }})
		require.Empty(t, p.Notes(), "paused: %v", paused)
		requireAcyclic(t, p)
		before := func(first, second string) {
			t.Helper()
			require.True(t, waitsFor(t, p, first, second), "paused: %v", paused)
			require.False(t, waitsFor(t, p, second, first), "paused: %v", paused)
		}
		before("dockermachines.infrastructure.cluster.x-k8s.io m/m", "machines.cluster.x-k8s.io m/m")
		before("kubeadmconfigs.bootstrap.cluster.x-k8s.io m/m", "machines.cluster.x-k8s.io m/m")
		before(cluster, "clusterresourcesetbindings.addons.cluster.x-k8s.io m/c")
		before("clusterresourcesetbindings.addons.cluster.x-k8s.io m/c", "clusterresourcesets.addons.cluster.x-k8s.io m/crs")
		for _, owned := range []string{"dockerclusters.infrastructure.cluster.x-k8s.io m/c", "machines.cluster.x-k8s.io m/m", "secrets m/kubeconfig"} {
			if paused {
				before(cluster, owned)
			} else {
				before(owned, cluster)
			}
		}
		before("dockerclustertemplates.infrastructure.cluster.x-k8s.io m/quick", "clusterclasses.cluster.x-k8s.io m/quick")
		before("clusterclasses.cluster.x-k8s.io m/quick", cluster)
	}
}

// Two objects that name each other are restored, one after the other; the log says so.
func TestObjectsThatNameEachOther(t *testing.T) {
	p := planOf(t, listingOf(withNames(newItem("alphas.example.com a/x"), reference.Names, "zetas.example.com a/z"), withNames(newItem("zetas.example.com a/z"), reference.Names, "alphas.example.com a/x")), options{})
	requireAcyclic(t, p)
	require.Len(t, p.Notes(), 1)
	require.Equal(t, Note{Node: p.Notes()[0].Node, Message: "names an object that waits for it: restored before that one"}, p.Notes()[0])
}

// What precedes a stage, because it fills a claim or is created paused, waits for what it names unless the
// stage itself waits for it.
func TestWhatPrecedesAStageNamesWhatFollowsIt(t *testing.T) {
	filled := withReferences(newItem("persistentvolumeclaims a/c"), manifest.Reference{Group: "example.com", Kind: "Filler", Namespace: "a", Name: "f", Relation: reference.FilledFrom})
	p := planOf(t, listingOf(filled, withNames(newItem("fillers.example.com a/f"), reference.Names, "stores.example.com a/s", "stores.example.com b/s", "secrets a/key", "persistentvolumeclaims a/other"),
		newItem("stores.example.com a/s"), newItem("stores.example.com b/s"), newItem("secrets a/key"), newItem("persistentvolumeclaims a/other")), options{})
	for _, first := range []string{"secrets a/key", "persistentvolumeclaims a/other", "stores.example.com b/s"} {
		require.True(t, waitsFor(t, p, first, "fillers.example.com a/f"), first)
	}
	require.True(t, waitsFor(t, p, "persistentvolumeclaims a/c", "stores.example.com a/s"))
	require.Len(t, p.Notes(), 1)
	require.False(t, p.Notes()[0].Warning)

	const application = "applications.argoproj.io a/shop"
	paused := func(kind schema.GroupKind) bool { return kind.Kind == "Application" }
	for name, secret := range map[string]manifest.Item{"": newItem("secrets a/s"), "the stage waits for it": newItem("secrets a/s", ownerReference("argoproj.io/v1alpha1", "Application", application, true))} {
		p := planOf(t, listingOf(withNames(newItem(application), reference.BelongsTo, "appprojects.argoproj.io a/p"), newItem("appprojects.argoproj.io a/p"), secret), options{paused: paused})
		require.Equal(t, name == "", waitsFor(t, p, "appprojects.argoproj.io a/p", application), name)
		require.True(t, waitsFor(t, p, "secrets a/s", "appprojects.argoproj.io a/p"), name)
		require.Equal(t, name != "", len(p.Notes()) == 1, name)
	}
}

// namingListing are custom resources that name Gadgets which the backup does not have, up to a number of names.
func namingListing(objects, names int) []manifest.Item {
	var items []manifest.Item
	for i := range objects {
		item := newItem(fmt.Sprintf("widgets.example.com a/w%d", i))
		for j := range names {
			item.References = append(item.References, manifest.Reference{Group: "example.com", Kind: "Gadget", Namespace: "a", Name: strings.Repeat("g", 500) + fmt.Sprint(j), Relation: reference.Names})
		}
		items = append(items, item)
	}
	return items
}

// A backup may say that everything names everything. The log says that some of it does not count.
func TestNamesAreBounded(t *testing.T) {
	p := planOf(t, listingOf(append(namingListing(20, 1000), withNames(newItem("zulus.example.com a/x"), reference.Names, "secrets b/s"), newItem("secrets b/s"))...), options{})
	require.False(t, waitsFor(t, p, "secrets b/s", "zulus.example.com a/x"))
	require.Len(t, p.Notes(), 1)
	require.Equal(t, none, p.Notes()[0].Node)
	require.Regexp(t, `^the backup has more references between objects than are kept: 1\d{4} do not count for the order`, p.Notes()[0].Message)

	hints := newHints()
	for i, item := range namingListing(20, 1000) {
		hints.takeNames(&item, roleCustom, i)
	}
	require.LessOrEqual(t, hints.taken, spareNameBytes+20*nameBytes+1000)
}

// Kinds of custom groups come before those of the core group in a manifest, so that a cluster with many of
// them has more names than objects for a while.
func TestNamesOfManyCustomResourcesCount(t *testing.T) {
	var items []manifest.Item
	for i := range 3000 {
		items = append(items, withNames(newItem(fmt.Sprintf("widgets.example.com a/w%04d", i)), reference.Names, "secrets b/s", "secrets b/t"))
	}
	p := planOf(t, listingOf(append(items, newItem("secrets b/s"), newItem("secrets b/t"))...), options{})
	require.True(t, waitsFor(t, p, "secrets b/t", "widgets.example.com a/w2999"))
	require.Empty(t, p.Notes())
}
