package seed

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kindSpec is one custom kind of the estate.
type kindSpec struct {
	kind     string
	plural   string
	scope    apiextensionsv1.ResourceScope
	versions []string // the last one is stored
}

var kinds = []kindSpec{
	{"Climate", "climates", apiextensionsv1.ClusterScoped, []string{"v1"}},
	{"Garden", "gardens", apiextensionsv1.NamespaceScoped, []string{"v1alpha1", "v1"}},
	{"Bed", "beds", apiextensionsv1.NamespaceScoped, []string{"v1"}},
	{"Plant", "plants", apiextensionsv1.NamespaceScoped, []string{"v1"}},
}

func customDefinitions() []*apiextensionsv1.CustomResourceDefinition {
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for _, k := range kinds {
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: objectMeta("", k.plural+"."+Group),
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: Group, Scope: k.scope,
				Names: apiextensionsv1.CustomResourceDefinitionNames{
					Kind: k.kind, ListKind: k.kind + "List", Plural: k.plural, Singular: strings.ToLower(k.kind),
				},
			},
		}
		for i, version := range k.versions {
			definition.Spec.Versions = append(definition.Spec.Versions, definitionVersion(version, i == len(k.versions)-1))
		}
		all = append(all, definition)
	}
	return all
}

func definitionVersion(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: stored,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}
}

// newCustomResource makes one custom resource.
func newCustomResource(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: "v1", Kind: kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(withLabels())
	return object
}

// ownerTree is an object and what it owns. Children are created after their owner, when its UID is
// known.
type ownerTree struct {
	object   client.Object
	children []ownerTree
}

// ownershipTree returns chains of owners four levels deep: a cluster-scoped Climate owns Gardens, which
// own Beds, which own Plants, which own ConfigMaps.
func ownershipTree(prefix string, namespaces []string) ownerTree {
	root := ownerTree{object: newCustomResource("Climate", "", prefix+"-temperate", map[string]any{"rain": int64(700), "ratio": 0.25, "zones": []any{"a", nil, true}})}
	for _, namespace := range namespaces {
		garden := ownerTree{object: newCustomResource("Garden", namespace, "garden", map[string]any{"text": awkwardText, "big": int64(9007199254740993)})}
		for b := range 3 {
			bed := ownerTree{object: newCustomResource("Bed", namespace, fmt.Sprintf("bed-%d", b), map[string]any{"row": int64(b)})}
			for p := range 4 {
				name := fmt.Sprintf("plant-%d-%d", b, p)
				note := withNote(namespace, name)
				bed.children = append(bed.children, ownerTree{
					object:   newCustomResource("Plant", namespace, name, map[string]any{"seed": textFor(name, 40)}),
					children: []ownerTree{{object: note}},
				})
			}
			garden.children = append(garden.children, bed)
		}
		root.children = append(root.children, garden)
	}
	return root
}

func withNote(namespace, plant string) client.Object {
	note := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"note": "owned by " + plant}}}
	note.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	note.SetNamespace(namespace)
	note.SetName("note-" + plant)
	note.SetLabels(withLabels())
	return note
}

// ownedBy returns the reference to an owner that has been created.
func ownedBy(owner client.Object) metav1.OwnerReference {
	gvk := owner.GetObjectKind().GroupVersionKind()
	return metav1.OwnerReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}
