package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// shopListing has a Deployment with all that it owns and needs, and as much that does not belong to it.
func shopListing() *listing {
	to := func(relation, kind, name string) manifest.Reference {
		namespace, plain, namespaced := strings.Cut(name, "/")
		if !namespaced {
			namespace, plain = "", name
		}
		group, kind, _ := strings.Cut("/"+kind, "/")
		if at := strings.LastIndex(kind, "/"); at >= 0 {
			group, kind = kind[:at], kind[at+1:]
		}
		return manifest.Reference{Group: group, Kind: kind, Namespace: namespace, Name: plain, Relation: relation}
	}
	const rbac = "rbac.authorization.k8s.io"
	items := newItems("namespaces other", "namespaces shop", "secrets shop/db", "secrets shop/of-pods", "configmaps shop/unrelated", "configmaps other/page",
		"persistentvolumes pv", "persistentvolumes free", "storageclasses.storage.k8s.io fast", "storageclasses.storage.k8s.io slow",
		"clusterroles."+rbac+" view", "clusterroles."+rbac+" edit", "roles."+rbac+" shop/own", "roles."+rbac+" shop/spare", "serviceaccounts shop/web", "serviceaccounts shop/idle", "deployments.apps other/web")
	items = append(items,
		withReferences(newItem("deployments.apps shop/web"), to(reference.Reads, "Secret", "shop/db"), to(reference.RunsAs, "ServiceAccount", "shop/web"), to(reference.Claims, "PersistentVolumeClaim", "shop/data")),
		newItem("configmaps shop/of-secret", ownerReference("v1", "Secret", "secrets shop/db", false)), // what a dependency owns does not come along
		newItem("replicasets.apps shop/web-1", ownerReference("apps/v1", "Deployment", "deployments.apps shop/web", true)),
		withReferences(newItem("pods shop/web-1-a", ownerReference("apps/v1", "ReplicaSet", "replicasets.apps shop/web-1", true)), to(reference.Mounts, "Secret", "shop/of-pods")),
		withReferences(newItem("persistentvolumeclaims shop/data"), to(reference.Binds, "PersistentVolume", "pv"), to(reference.ProvisionedBy, "storage.k8s.io/StorageClass", "fast")),
		withReferences(newItem("clusterrolebindings."+rbac+" web"), to(reference.Grants, rbac+"/ClusterRole", "view"), to(reference.GrantsTo, "ServiceAccount", "shop/web")),
		withReferences(newItem("clusterrolebindings."+rbac+" idle"), to(reference.Grants, rbac+"/ClusterRole", "edit"), to(reference.GrantsTo, "ServiceAccount", "shop/idle")),
		withReferences(newItem("rolebindings."+rbac+" shop/web"), to(reference.Grants, rbac+"/Role", "shop/own"), to(reference.GrantsTo, "ServiceAccount", "shop/web")),
		withReferences(newItem("rolebindings."+rbac+" shop/idle"), to(reference.Grants, rbac+"/Role", "shop/spare"), to(reference.GrantsTo, "ServiceAccount", "shop/idle")),
	)
	for i := range items {
		if kind := camelCase[items[i].Resource]; kind != "" {
			items[i].Kind = kind
		}
	}
	slices.SortFunc(items, func(a, b manifest.Item) int { return a.Key().Compare(b.Key()) })
	for i := range items {
		if items[i].Name == "db" {
			items[i].Labels = map[string]string{"tier": "data"}
		}
	}
	return listingOf(items...)
}

// camelCase are kinds that newItem does not know.
var camelCase = map[string]string{"persistentvolumes": "PersistentVolume", "storageclasses": "StorageClass", "clusterroles": "ClusterRole", "roles": "Role", "configmaps": "ConfigMap", "replicasets": "ReplicaSet"}

func itemsOf(t *testing.T, names string, with ...string) selection.Items {
	t.Helper()
	annotations := map[string]string{"holdfast.io/items": names}
	if len(with) > 0 {
		annotations["holdfast.io/items-with"] = strings.Join(with, ",")
	}
	items, err := selection.ParseItems(annotations)
	require.NoError(t, err)
	return items
}

func TestPartsOfABackup(t *testing.T) {
	const named, needed = "deployments.apps shop/web", "secrets shop/db serviceaccounts shop/web persistentvolumeclaims shop/data"
	boundTo := func(volume string) (string, string) { return map[string]string{"pv": "shop"}[volume], "data" }
	rights := []string{"clusterrolebindings.rbac.authorization.k8s.io web", "clusterroles.rbac.authorization.k8s.io view", "rolebindings.rbac.authorization.k8s.io shop/web", "roles.rbac.authorization.k8s.io shop/own"}
	dependencies := append([]string{"secrets shop/db", "serviceaccounts shop/web", "persistentvolumeclaims shop/data", "persistentvolumes pv", "storageclasses.storage.k8s.io fast"}, rights...)
	children := []string{"replicasets.apps shop/web-1", "pods shop/web-1-a"}
	no := false
	for name, tt := range map[string]struct {
		items   selection.Items
		options options
		want    []string
		leftOut []string
	}{
		"alone":          {items: itemsOf(t, "deploy/shop/web"), want: []string{named}},
		"dependencies":   {items: itemsOf(t, "deploy/shop/web", "dependencies"), want: append([]string{named}, dependencies...)},
		"children":       {items: itemsOf(t, "Deployment/shop/web", "children"), want: append([]string{named}, children...)},
		"both":           {items: itemsOf(t, "deployments.apps/shop/web", "children", "dependencies"), want: slices.Concat([]string{named, "secrets shop/of-pods"}, dependencies, children)},
		"two":            {items: itemsOf(t, "cm/shop/unrelated, sc/shop/slow"), want: []string{"configmaps shop/unrelated", "storageclasses.storage.k8s.io slow"}},
		"an account":     {items: itemsOf(t, "sa/shop/web"), want: []string{"serviceaccounts shop/web"}},
		"a claim":        {items: itemsOf(t, "pvc/shop/data"), want: []string{"persistentvolumeclaims shop/data", "persistentvolumes pv"}},
		"without shared": {items: itemsOf(t, "deploy/shop/web", "dependencies"), options: options{noCluster: true, spec: selection.Spec{IncludeClusterResources: &no}}, want: append([]string{named, "secrets shop/db", "serviceaccounts shop/web", "persistentvolumeclaims shop/data"}, rights[2:]...)},
		"some resources": {items: itemsOf(t, "deploy/shop/web", "children", "dependencies"), options: options{spec: selection.Spec{ExcludedResources: []string{"pods", "persistentvolumeclaims", "persistentvolumes"}}},
			want: append([]string{named, "secrets shop/db", "secrets shop/of-pods", "serviceaccounts shop/web", "storageclasses.storage.k8s.io fast", "replicasets.apps shop/web-1"}, rights...)},
		"by a label":           {items: itemsOf(t, "deploy/shop/web,secret/shop/db"), options: options{spec: selection.Spec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}}}}, want: []string{"secrets shop/db"}, leftOut: []string{"Deployment shop/web"}},
		"of another namespace": {items: itemsOf(t, "deploy/shop/web"), options: options{namespaces: []string{"other"}}, leftOut: []string{"Deployment shop/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := shopListing()
			parts, problems, err := FindParts(t.Context(), l, tt.items)
			require.NoError(t, err)
			require.Empty(t, problems)
			survey, err := ReadSurvey(t.Context(), l)
			require.NoError(t, err)
			if tt.options.spec.IncludeClusterResources == nil && len(tt.options.spec.ExcludedResources) == 0 {
				require.Len(t, parts.Volumes(survey.Volumes), strings.Count(strings.Join(tt.want, " "), "persistentvolumes pv"))
			}
			tt.options.parts, tt.options.claim = parts, boundTo
			p := planOf(t, l, tt.options)
			names := nodeNames(p)
			require.ElementsMatch(t, tt.want, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "namespaces shop" }))
			require.Equal(t, tt.leftOut, parts.LeftOut())
			for i := range int32(p.Len()) {
				kind, _, _ := strings.Cut(names[i], " ")
				require.Equal(t, slices.Contains([]string{"deployments.apps", "configmaps"}, kind) || len(tt.want) < 3 && kind != "persistentvolumes" && kind != "namespaces", p.Named(i), names[i])
			}
		})
	}
}

func TestWhyPartsComeAlong(t *testing.T) {
	l := shopListing()
	parts, _, err := FindParts(t.Context(), l, itemsOf(t, "deploy/shop/web", "dependencies", "children"))
	require.NoError(t, err)
	p := planOf(t, l, options{parts: parts, claim: func(string) (string, string) { return "", "" }})
	said := map[string]string{}
	for _, note := range p.Notes() {
		require.False(t, note.Warning)
		if note.Node != none {
			said[nodeNames(p)[note.Node]] = note.Message
		}
	}
	require.Len(t, said, p.Len()-1, "all but the Deployment")
	for object, reason := range map[string]string{
		"secrets shop/db":                          "Deployment shop/web reads it",
		"serviceaccounts shop/web":                 "Deployment shop/web runs as it",
		"secrets shop/of-pods":                     "Pod shop/web-1-a mounts it",
		"pods shop/web-1-a":                        "ReplicaSet shop/web-1 owns it",
		"storageclasses.storage.k8s.io fast":       "PersistentVolumeClaim shop/data is provisioned by it",
		"persistentvolumes pv":                     "PersistentVolumeClaim shop/data binds it",
		"namespaces shop":                          "objects of the restore live in it",
		"roles.rbac.authorization.k8s.io shop/own": "it grants rights to an account of the restore",
	} {
		require.Equal(t, "comes along: "+reason, said[object])
	}
	require.Contains(t, p.Notes()[len(p.Notes())-1].Message, "objects named: 1, brought along: 13")
}

func TestUnknownItems(t *testing.T) {
	for name, want := range map[string]string{
		"deploy/shop/db":  `item deploy/shop/db: the backup holds no Deployment "db" in namespace "shop"`,
		"cm/shop/page":    `item cm/shop/page: the backup holds no ConfigMap "page" in namespace "shop", but one in other`,
		"deploy/web":      `item deploy/web: the backup holds no Deployment "web", but one in other, shop`,
		"gadget/shop/web": `item gadget/shop/web: the backup holds no object of kind "gadget"`,
	} {
		_, problems, err := FindParts(t.Context(), shopListing(), itemsOf(t, name+",sc/fast"))
		require.NoError(t, err)
		require.Equal(t, []string{want}, problems)
	}
}

// What actions name has no reservation where the items alone say which namespaces the restore is of.
func TestActionsAddNothingOutsideOfTheNamespacesOfItems(t *testing.T) {
	l := shopListing()
	for with, other := range map[string]bool{"": false, "dependencies": true} {
		items := itemsOf(t, "deploy/shop/web")
		items.Dependencies = with != ""
		parts, _, err := FindParts(t.Context(), l, items)
		require.NoError(t, err)
		p := planOf(t, l, options{parts: parts})
		require.True(t, p.Admits(schema.GroupResource{Resource: "secrets"}, "shop"))
		require.Equal(t, other, p.Admits(schema.GroupResource{Resource: "secrets"}, "other"))
	}
}
