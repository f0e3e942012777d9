package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
)

func withReferences(i manifest.Item, refs ...manifest.Reference) manifest.Item {
	i.References = refs
	return i
}

func listingOf(items ...manifest.Item) *listing { return &listing{items: items} }

// A live operator whose custom resource comes before the Secrets and claims which it reads makes
// new ones, and the stored ones are lost: those that it does not own have no owner reference. So
// does a StatefulSet with its claims.
func TestWhatControllersLookForComesBeforeThem(t *testing.T) {
	material := []string{"secrets a/x", "configmaps a/x", "serviceaccounts a/x", "services a/x", "endpoints a/x", "persistentvolumeclaims a/x"}
	acting := []string{"pods a/y", "statefulsets.apps a/y", "deployments.apps a/y", "jobs.batch a/y", "widgets.example.com a/y", "replicationcontrollers a/y"}
	p := planOf(t, &listing{items: newItems(append(append([]string{"deployments.apps b/other", "networkpolicies.networking.k8s.io a/free"}, material...), acting...)...)}, options{})
	for _, m := range material {
		for _, a := range acting {
			require.True(t, waitsFor(t, p, m, a), "%s, %s", m, a)
		}
		require.False(t, waitsFor(t, p, m, "deployments.apps b/other"), "other namespaces do not wait")
		require.False(t, waitsFor(t, p, m, "networkpolicies.networking.k8s.io a/free"))
	}
	require.Empty(t, p.Notes())
}

// Pods that came before their NetworkPolicies were open to everybody for seconds.
func TestWhatGuardsPodsComesBeforeThem(t *testing.T) {
	own := []string{"networkpolicies.networking.k8s.io a/deny", "ciliumnetworkpolicies.cilium.io a/deny", "networkpolicies.crd.projectcalico.org a/deny",
		"authorizationpolicies.security.istio.io a/deny", "servers.policy.linkerd.io a/deny"}
	wide := []string{"ciliumclusterwidenetworkpolicies.cilium.io deny", "globalnetworkpolicies.crd.projectcalico.org deny",
		"adminnetworkpolicies.policy.networking.k8s.io deny", "peerauthentications.security.istio.io istio-system/strict"}
	other := []string{"clusterpolicies.kyverno.io last", "ciliumnodes.cilium.io node", "networkpolicies.networking.k8s.io istio-system/deny"}
	acting := []string{"pods a/p", "deployments.apps a/d", "widgets.example.com a/w"}
	p := planOf(t, listingOf(newItems(slices.Concat(own, wide, other, acting, []string{"pods b/p", "clusterwidgets.example.com c"})...)...), options{})
	for _, a := range acting {
		for _, guard := range slices.Concat(own, wide) {
			require.True(t, waitsFor(t, p, guard, a), "%s, %s", guard, a)
		}
		for _, o := range other {
			require.False(t, waitsFor(t, p, o, a), "%s, %s", o, a)
		}
	}
	for _, guard := range own {
		require.False(t, waitsFor(t, p, guard, "pods b/p"), "other namespaces do not wait")
	}
	for _, guard := range wide {
		require.True(t, waitsFor(t, p, guard, "pods b/p"), guard)
		require.True(t, waitsFor(t, p, guard, "clusterwidgets.example.com c"), guard)
	}
	require.Empty(t, p.Notes())
	wideOnly := planOf(t, listingOf(newItems(wide[0], "clusterwidgets.example.com c")...), options{})
	require.True(t, waitsFor(t, wideOnly, wide[0], "clusterwidgets.example.com c"))
}

// An owner of a guard that acts on objects comes after it, and a guard behind the APIService of the restore
// holds nobody up.
func TestGuardsThatCannotComeFirst(t *testing.T) {
	const policy = "networkpolicies.projectcalico.org a/deny"
	p := planOf(t, listingOf(newItems(policy, "apiservices.apiregistration.k8s.io v3.projectcalico.org", "pods a/p")...), options{})
	require.False(t, waitsFor(t, p, policy, "pods a/p"))
	require.True(t, waitsFor(t, p, "pods a/p", policy))
	i, _ := p.Find("networkpolicies.projectcalico.org", "a", "deny")
	require.True(t, p.GuardsLate(i))
	require.False(t, p.Guards(i))
	for order, guards := range map[restoreorder.Order]bool{"": true, restoreorder.Stages: true, restoreorder.Owners: false, restoreorder.Velero: false} {
		p = planOf(t, listingOf(newItems(policy, "pods a/p")...), options{order: order})
		i, _ = p.Find("networkpolicies.projectcalico.org", "a", "deny")
		require.Equal(t, guards, p.Guards(i), order)
		require.False(t, p.GuardsLate(i))
	}
	p = planOf(t, listingOf(newItem("networkpolicies.networking.k8s.io a/np", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)), newItem("widgets.example.com a/w")), options{})
	require.True(t, waitsFor(t, p, "networkpolicies.networking.k8s.io a/np", "widgets.example.com a/w"))
	require.Empty(t, p.Notes())
}

// The controller of a cluster-scoped custom resource makes Secrets in any namespace.
func TestClusterScopedCustomResourcesComeAfterTheStagesOfAllNamespaces(t *testing.T) {
	p := planOf(t, &listing{items: newItems("secrets a/s", "persistentvolumeclaims b/c", "clusterwidgets.example.com w",
		"securitycontextconstraints.security.openshift.io scc", "pods a/p")}, options{})
	require.True(t, waitsFor(t, p, "secrets a/s", "clusterwidgets.example.com w"))
	require.True(t, waitsFor(t, p, "persistentvolumeclaims b/c", "clusterwidgets.example.com w"))
}

// An operator makes what it owns and does not find, so that owned objects precede their owner,
// however deep; only owners on which no controller acts come first.
func TestDependantsPrecedeTheirOwner(t *testing.T) {
	p := planOf(t, listingOf(
		newItem("widgets.example.com a/w"), newItem("gadgets.example.com a/g", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)),
		newItem("secrets a/s", ownerReference("example.com/v1", "Gadget", "gadgets.example.com a/g", true)),
		newItem("deployments.apps a/d", ownerReference("example.com/v1", "Gadget", "gadgets.example.com a/g", true)),
		newItem("clusterwidgets.example.com c"), newItem("widgets.example.com b/w", ownerReference("example.com/v1", "ClusterWidget", "clusterwidgets.example.com c", true)),
		newItem("configmaps a/lock"), newItem("pods a/locked", ownerReference("v1", "ConfigMap", "configmaps a/lock", false)),
		newItem("services a/svc"), newItem("widgets.example.com a/of-svc", ownerReference("v1", "Service", "services a/svc", false)),
		newItem("secrets a/of-svc", ownerReference("v1", "Service", "services a/svc", false)),
	), options{})
	require.True(t, waitsFor(t, p, "secrets a/s", "gadgets.example.com a/g"))
	require.True(t, waitsFor(t, p, "deployments.apps a/d", "gadgets.example.com a/g"))
	require.True(t, waitsFor(t, p, "gadgets.example.com a/g", "widgets.example.com a/w"))
	require.True(t, waitsFor(t, p, "widgets.example.com b/w", "clusterwidgets.example.com c"))
	require.True(t, waitsFor(t, p, "configmaps a/lock", "pods a/locked"))
	require.True(t, waitsFor(t, p, "services a/svc", "widgets.example.com a/of-svc"))
	require.True(t, waitsFor(t, p, "secrets a/of-svc", "services a/svc"))
	require.Empty(t, p.Notes(), "none of this is a cycle")
	requireAcyclic(t, p)
}

// With a gate of all volumes before all claims, one volume that is made of a snapshot for minutes
// holds up every namespace.
func TestAClaimWaitsForItsOwnVolumeOnly(t *testing.T) {
	bound := func(volume string) (string, string) {
		if volume == "mine" {
			return "a", "bound"
		}
		return "", ""
	}
	p := planOf(t, listingOf(newItem("persistentvolumes mine"), newItem("persistentvolumes free"), newItem("persistentvolumes other"),
		newItem("persistentvolumeclaims a/bound"), newItem("persistentvolumeclaims b/unbound"),
		withReferences(newItem("persistentvolumeclaims a/names"), manifest.Reference{Kind: "PersistentVolume", Name: "free", Relation: reference.Binds}),
	), options{claim: bound})
	require.True(t, waitsFor(t, p, "persistentvolumes mine", "persistentvolumeclaims a/bound"))
	require.True(t, waitsFor(t, p, "persistentvolumes free", "persistentvolumeclaims a/names"))
	for _, claim := range []string{"persistentvolumeclaims a/bound", "persistentvolumeclaims b/unbound", "persistentvolumeclaims a/names"} {
		require.False(t, waitsFor(t, p, "persistentvolumes other", claim), claim)
	}
	require.False(t, waitsFor(t, p, "persistentvolumes free", "persistentvolumeclaims a/bound"))
}

// A claim that is filled by a custom resource needs it first, although custom resources come after
// claims.
func TestWhatFillsAClaimComesBeforeIt(t *testing.T) {
	p := planOf(t, listingOf(newItem("fillers.example.com a/f"), newItem("fillers.example.com a/unused"), newItem("secrets a/s"), newItem("volumesnapshots.snapshot.storage.k8s.io a/snap"),
		withReferences(newItem("persistentvolumeclaims a/c"), manifest.Reference{Group: "example.com", Kind: "Filler", Namespace: "a", Name: "f", Relation: reference.FilledFrom}),
		withReferences(newItem("persistentvolumeclaims a/d"), manifest.Reference{Group: "snapshot.storage.k8s.io", Kind: "Volumesnapshot", Namespace: "a", Name: "snap", Relation: reference.FilledFrom}),
	), options{})
	require.True(t, waitsFor(t, p, "fillers.example.com a/f", "persistentvolumeclaims a/c"))
	require.True(t, waitsFor(t, p, "volumesnapshots.snapshot.storage.k8s.io a/snap", "persistentvolumeclaims a/d"))
	require.True(t, waitsFor(t, p, "persistentvolumeclaims a/c", "fillers.example.com a/unused"))
	require.Empty(t, p.Notes())
}

// A claim can name a custom resource of another namespace as what fills it, and no permission is
// needed for that: the resource lost its place behind the Secrets of its own namespace, and its
// operator made new ones.
func TestAClaimOfAnotherNamespaceTakesNoStageAway(t *testing.T) {
	p := planOf(t, listingOf(newItem("databases.example.com victim/db"), newItem("secrets victim/password"),
		withReferences(newItem("persistentvolumeclaims other/c"), manifest.Reference{Group: "example.com", Kind: "Database", Namespace: "victim", Name: "db", Relation: reference.FilledFrom}),
	), options{})
	require.True(t, waitsFor(t, p, "secrets victim/password", "databases.example.com victim/db"))
	require.True(t, waitsFor(t, p, "databases.example.com victim/db", "persistentvolumeclaims other/c"))
	require.Empty(t, p.Notes())
}

// A controller that watches Ingresses (cert-manager's ingress-shim) made a Certificate, and with it
// a new key, for each Ingress that came before the stored Certificate and Secret.
func TestWhatAnIngressMakesComesBeforeIt(t *testing.T) {
	p := planOf(t, listingOf(newItem("ingresses.networking.k8s.io a/i"), newItem("secrets a/tls"), newItem("ingressclasses.networking.k8s.io c"),
		newItem("certificates.cert-manager.io a/tls", ownerReference("networking.k8s.io/v1", "Ingress", "ingresses.networking.k8s.io a/i", true))), options{})
	for _, first := range []string{"secrets a/tls", "certificates.cert-manager.io a/tls", "ingressclasses.networking.k8s.io c"} {
		require.True(t, waitsFor(t, p, first, "ingresses.networking.k8s.io a/i"), first)
	}
	require.Empty(t, p.Notes())
}

// Once a webhook configuration, a binding or a quota exists it judges the requests for all the
// rest: a fail-closed webhook whose own Deployment is not up yet refuses that one's Pods. As a rank
// it came too early for what was not ready yet.
func TestWhatAdmitsComesAfterEverythingElse(t *testing.T) {
	webhook := "validatingwebhookconfigurations.admissionregistration.k8s.io w"
	p := planOf(t, listingOf(
		newItem(webhook, ownerReference("example.com/v1", "ClusterWidget", "clusterwidgets.example.com cw", true)),
		newItem("resourcequotas a/q", ownerReference("example.com/v1", "ClusterWidget", "clusterwidgets.example.com cw", true)),
		newItem("clusterpolicies.kyverno.io p"), newItem("mutatingadmissionpolicybindings.admissionregistration.k8s.io b"),
		newItem("clusterwidgets.example.com cw"), newItem("deployments.apps a/d"), newItem("replicasets.apps a/rs", ownerReference("apps/v1", "Deployment", "deployments.apps a/d", true)),
		newItem("pods a/p", ownerReference("apps/v1", "ReplicaSet", "replicasets.apps a/rs", true)), newItem("secrets lonely/s"), newItem("services a/s"), newItem("clusterroles.rbac.authorization.k8s.io r"),
	), options{})
	for _, admits := range []string{webhook, "resourcequotas a/q", "mutatingadmissionpolicybindings.admissionregistration.k8s.io b"} {
		for _, other := range []string{"clusterwidgets.example.com cw", "deployments.apps a/d", "replicasets.apps a/rs", "pods a/p", "secrets lonely/s", "services a/s",
			"clusterroles.rbac.authorization.k8s.io r"} {
			require.True(t, waitsFor(t, p, other, admits), "%s, %s", other, admits)
		}
	}
	require.Empty(t, p.Notes())
	requireAcyclic(t, p)
}

// The API server hands requests for the group of an APIService to its Service: what serves it comes
// first, its objects after it. APIServices of definitions are made by the API server, and no object
// waits for them.
func TestAPIServicesComeBetweenTheRestAndTheirObjects(t *testing.T) {
	own := newItem("apiservices.apiregistration.k8s.io v1.example.com")
	own.Labels = map[string]string{automanaged: "onstart"}
	p := planOf(t, listingOf(own, newItem("apiservices.apiregistration.k8s.io v1beta1.served.org"),
		newItem("things.served.org a/t", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)),
		newItem("widgets.example.com a/w"), newItem("deployments.apps a/d"), newItem("secrets b/s"), newItem("validatingwebhookconfigurations.admissionregistration.k8s.io w"),
	), options{})
	for _, first := range []string{"widgets.example.com a/w", "deployments.apps a/d", "secrets b/s"} {
		require.True(t, waitsFor(t, p, first, "apiservices.apiregistration.k8s.io v1beta1.served.org"), first)
	}
	require.True(t, waitsFor(t, p, "apiservices.apiregistration.k8s.io v1beta1.served.org", "things.served.org a/t"))
	require.True(t, waitsFor(t, p, "things.served.org a/t", "validatingwebhookconfigurations.admissionregistration.k8s.io w"))
	require.False(t, waitsFor(t, p, "apiservices.apiregistration.k8s.io v1.example.com", "widgets.example.com a/w"))
	require.Empty(t, p.Notes())
	requireAcyclic(t, p)
}

// An APIService of a group that the API server serves by itself, whose label a user removed, put
// all objects of that group behind the workloads that need them.
func TestAnAPIServiceOfABuiltInGroupHoldsNobodyUp(t *testing.T) {
	p := planOf(t, listingOf(newItem("apiservices.apiregistration.k8s.io v1."), newItem("apiservices.apiregistration.k8s.io v1.apps"),
		newItem("secrets a/s"), newItem("deployments.apps a/d")), options{})
	require.True(t, waitsFor(t, p, "secrets a/s", "deployments.apps a/d"))
	require.False(t, waitsFor(t, p, "apiservices.apiregistration.k8s.io v1.", "secrets a/s"))
}

// Where the API server limits a priority class to namespaces with a quota for it, a Pod that
// precedes the quota is refused.
func TestAQuotaOfAPriorityClassComesBeforePods(t *testing.T) {
	p := planOf(t, listingOf(withReferences(newItem("resourcequotas a/scoped"), manifest.Reference{Group: "scheduling.k8s.io", Kind: "PriorityClass", Name: "high", Relation: reference.LimitedTo}),
		newItem("resourcequotas a/plain"), newItem("pods a/p")), options{})
	require.True(t, waitsFor(t, p, "resourcequotas a/scoped", "pods a/p"))
	require.True(t, waitsFor(t, p, "pods a/p", "resourcequotas a/plain"))
	requireAcyclic(t, p)
}

// A LimitRange refuses, or changes, Pods and claims that were there before it was.
func TestLimitRangesComeAfterPodsAndBeforeWhatMakesThem(t *testing.T) {
	p := planOf(t, &listing{items: newItems("limitranges a/l", "pods a/p", "persistentvolumeclaims a/c", "deployments.apps a/d", "pods b/p")}, options{})
	require.True(t, waitsFor(t, p, "pods a/p", "limitranges a/l"))
	require.True(t, waitsFor(t, p, "persistentvolumeclaims a/c", "limitranges a/l"))
	require.True(t, waitsFor(t, p, "limitranges a/l", "deployments.apps a/d"))
	require.False(t, waitsFor(t, p, "pods b/p", "limitranges a/l"))
}

// Admission reads classes: a Pod whose RuntimeClass comes after it is refused.
func TestWhatAdmissionLooksUpComesFirst(t *testing.T) {
	p := planOf(t, &listing{items: newItems("runtimeclasses.node.k8s.io r", "priorityclasses.scheduling.k8s.io p", "storageclasses.storage.k8s.io s",
		"ingressclasses.networking.k8s.io i", "pods a/p", "deployments.apps b/d", "persistentvolumeclaims a/c", "persistentvolumes v", "ingresses.networking.k8s.io a/i")}, options{})
	for first, then := range map[string][]string{
		"runtimeclasses.node.k8s.io r": {"pods a/p", "deployments.apps b/d"}, "priorityclasses.scheduling.k8s.io p": {"pods a/p", "deployments.apps b/d"},
		"storageclasses.storage.k8s.io s": {"persistentvolumeclaims a/c", "persistentvolumes v"}, "ingressclasses.networking.k8s.io i": {"ingresses.networking.k8s.io a/i"},
	} {
		for _, after := range then {
			require.True(t, waitsFor(t, p, first, after), "%s, %s", first, after)
		}
	}
}

// The API server converts custom resources by calling a Service of the same backup, which answers
// once its Pods run.
func TestConvertedObjectsComeAfterTheConvertingWorkload(t *testing.T) {
	definition := withReferences(newItem("customresourcedefinitions.apiextensions.k8s.io widgets.example.com"),
		manifest.Reference{Kind: "Service", Namespace: "system", Name: "converter", Relation: reference.Calls})
	p := planOf(t, listingOf(definition, newItem("widgets.example.com a/w"), newItem("gadgets.example.com a/g"), newItem("deployments.apps system/converter"), newItem("pods system/p"),
		newItem("pods a/p")), options{})
	require.True(t, waitsFor(t, p, "deployments.apps system/converter", "widgets.example.com a/w"))
	require.True(t, waitsFor(t, p, "pods system/p", "widgets.example.com a/w"))
	require.False(t, waitsFor(t, p, "deployments.apps system/converter", "gadgets.example.com a/g"))
	require.False(t, waitsFor(t, p, "pods a/p", "widgets.example.com a/w"))
}

// A cycle through a stage costs the stage, for one object and with a warning, before it costs the
// order of owned objects.
func TestAStageInACycleGivesWayWithAWarning(t *testing.T) {
	p := planOf(t, listingOf(
		newItem("fillers.example.com a/f"), newItem("deployments.apps a/d", ownerReference("example.com/v1", "Filler", "fillers.example.com a/f", true)), newItem("secrets a/s"),
		withReferences(newItem("persistentvolumeclaims a/c"), manifest.Reference{Group: "example.com", Kind: "Filler", Namespace: "a", Name: "f", Relation: reference.FilledFrom}),
	), options{})
	requireAcyclic(t, p)
	require.Len(t, p.Notes(), 1)
	require.Equal(t, Note{Node: p.Notes()[0].Node, Warning: true,
		Message: "waits for an object of its namespace that waits for it: restored after the first workloads and custom resources there"}, p.Notes()[0])
	require.Equal(t, "c", p.Name(p.Notes()[0].Node))
	require.True(t, waitsFor(t, p, "secrets a/s", "deployments.apps a/d"))
	require.True(t, waitsFor(t, p, "deployments.apps a/d", "fillers.example.com a/f"))
	require.True(t, waitsFor(t, p, "fillers.example.com a/f", "persistentvolumeclaims a/c"))
}

// An operator may want its custom resource before what belongs to it; a graph of owners alone gives
// it that.
func TestTheOrderOfOwnersHasRootsBeforeLeaves(t *testing.T) {
	p := planOf(t, listingOf(newItem("widgets.example.com a/w"), newItem("secrets a/s", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)), newItem("secrets a/free"),
		newItem("deployments.apps a/d", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)), newItem("replicasets.apps a/rs", ownerReference("apps/v1", "Deployment", "deployments.apps a/d", true)),
		newItem("validatingwebhookconfigurations.admissionregistration.k8s.io h")), options{order: restoreorder.Owners})
	require.True(t, waitsFor(t, p, "widgets.example.com a/w", "secrets a/s"))
	require.True(t, waitsFor(t, p, "widgets.example.com a/w", "deployments.apps a/d"))
	require.True(t, waitsFor(t, p, "replicasets.apps a/rs", "deployments.apps a/d"), "they are adopted in any order")
	require.False(t, waitsFor(t, p, "secrets a/free", "widgets.example.com a/w"), "there are no stages")
	require.True(t, waitsFor(t, p, "secrets a/s", "validatingwebhookconfigurations.admissionregistration.k8s.io h"))
	requireAcyclic(t, p)
}

// Velero's order is its list, one resource after the other, whatever owns what.
func TestTheOrderOfVeleroIsItsList(t *testing.T) {
	p := planOf(t, listingOf(newItem("widgets.example.com a/w"), newItem("secrets a/s", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)), newItem("secrets b/s"),
		newItem("apples.example.com a/x", ownerReference("example.com/v1", "Widget", "widgets.example.com a/w", true)), newItem("persistentvolumes v"), newItem("pods a/p"),
		newItem("clusters.cluster.x-k8s.io a/c"), newItem("validatingwebhookconfigurations.admissionregistration.k8s.io h")), options{order: restoreorder.Velero})
	order := nodeNames(p)
	require.Equal(t, []string{"persistentvolumes v", "secrets a/s", "secrets b/s", "pods a/p", "apples.example.com a/x",
		"validatingwebhookconfigurations.admissionregistration.k8s.io h", "widgets.example.com a/w", "clusters.cluster.x-k8s.io a/c"}, order)
	for i := range order {
		for j := i + 1; j < len(order); j++ {
			require.Equal(t, p.Kind(int32(i)) != p.Kind(int32(j)), waitsFor(t, p, order[i], order[j]), "%s, %s", order[i], order[j])
		}
	}
	requireAcyclic(t, p)
}

// Some controllers adopt, or make anew, what is theirs: a patched reference, or a second object,
// would be in their way.
func TestTreatments(t *testing.T) {
	by := func(apiVersion, kind string, controller bool) objmeta.Owner {
		return objmeta.Owner{APIVersion: apiVersion, Kind: kind, Controller: controller}
	}
	for _, tt := range []struct {
		group, kind string
		owner       objmeta.Owner
		want        Relation
	}{
		{"apps", "ReplicaSet", by("apps/v1", "Deployment", true), Adopt},
		{"", "Pod", by("apps/v1", "StatefulSet", true), Adopt},
		{"", "Pod", by("apps/v1", "StatefulSet", false), Late},
		{"apps", "ControllerRevision", by("apps/v1", "DaemonSet", true), Adopt},
		{"", "Pod", by("batch/v1", "Job", true), Remake},
		{"", "Endpoints", by("v1", "Service", true), Hold},
		{"batch", "Job", by("batch/v1", "CronJob", true), Late},
		{"", "PersistentVolumeClaim", by("postgresql.cnpg.io/v1", "Cluster", true), Adopt},
		{"", "Pod", by("postgresql.cnpg.io/v1", "Cluster", true), Remake},
		{"", "Service", by("postgresql.cnpg.io/v1", "Cluster", true), Remake},
		{"", "Secret", by("postgresql.cnpg.io/v1", "Cluster", true), Late},
		{"", "Pod", by("argoproj.io/v1alpha1", "Workflow", true), Remake},
		{"", "Secret", by("v1", "ConfigMap", true), Hold},
	} {
		require.Equal(t, tt.want, Relate(schema.GroupKind{Group: tt.group, Kind: tt.kind}, tt.owner), "%s of %s", tt.kind, tt.owner.Kind)
	}
}
