package debug

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	// page is how many objects are read at once, readAtMost how many of a kind at all; the newest
	// keptAtMost of these are in the bundle.
	page       = 250
	readAtMost = 5000
	keptAtMost = 500
)

// bundleKind is a kind of objects that the bundle has.
type bundleKind struct {
	file string
	gvk  schema.GroupVersionKind
	// options choose its objects; only are names, all if there are none; keep chooses by labels, nil
	// keeps all.
	options []client.ListOption
	only    []string
	keep    func(labels map[string]string) bool
	// drop removes what is not wanted of an object.
	drop func(map[string]any)
}

// bundleKinds are those of velero.io in the namespace and those of the installation itself. Secrets are
// not among them.
func bundleKinds(namespace string) ([]bundleKind, error) {
	here := client.InNamespace(namespace)
	ours := client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"}
	all := []bundleKind{
		{file: "deployments", gvk: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, options: []client.ListOption{here}, keep: isConcerned},
		{file: "statefulsets", gvk: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, options: []client.ListOption{here, ours}},
		{file: "pods", gvk: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, options: []client.ListOption{here, ours}},
		{file: "events", gvk: schema.GroupVersionKind{Version: "v1", Kind: "Event"}, options: []client.ListOption{here}},
		{file: "leases", gvk: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, options: []client.ListOption{here}},
		{file: "configmaps", gvk: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, options: []client.ListOption{here}, only: []string{"holdfast-queue", "holdfast-settings"}},
		{
			file: "definitions", gvk: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
			drop: func(object map[string]any) { delete(object, "spec") },
		},
	}
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	definitionsKind := &all[len(all)-1]
	for _, crd := range definitions {
		definitionsKind.only = append(definitionsKind.only, crd.Name)
		for _, v := range crd.Spec.Versions {
			all = append(all, bundleKind{
				file: crd.Name + "." + v.Name, gvk: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}, options: []client.ListOption{here},
			})
		}
	}
	return all, nil
}

// isConcerned reports whether the labels of a Deployment are those of Holdfast's chart, or those of
// Velero's server, which works on the same objects: as `velero install` or Velero's chart has them.
func isConcerned(labels map[string]string) bool {
	return labels["app.kubernetes.io/part-of"] == "holdfast" || labels[velerov1.LabelComponent] == "velero" || labels["app.kubernetes.io/name"] == "velero"
}

// writeObjects adds a file of YAML documents for each kind.
func writeObjects(ctx context.Context, a *bundleArchive, cfg Config) {
	all, err := bundleKinds(cfg.Namespace)
	if err != nil {
		a.noteProblem("objects", err)
		return
	}
	for i := range all {
		k := &all[i]
		name := "objects/" + k.file + ".yaml"
		a.runPart(ctx, name, cfg.Timeout, func(ctx context.Context) error { return objectsOf(ctx, a, cfg.Reader, k, name) })
	}
}

func objectsOf(ctx context.Context, a *bundleArchive, r client.Reader, k *bundleKind, name string) error {
	found, more, err := listKind(ctx, r, k)
	if err != nil && len(found) == 0 {
		return err
	}
	total := len(found)
	slices.SortStableFunc(found, func(x, y unstructured.Unstructured) int {
		return cmp.Compare(y.GetCreationTimestamp().Unix(), x.GetCreationTimestamp().Unix())
	})
	found = found[:min(total, keptAtMost)]
	var out bytes.Buffer
	written := 0
	for i := range found {
		if k.drop != nil {
			k.drop(found[i].Object)
		}
		scrubObject(found[i].Object)
		document, err := yaml.Marshal(found[i].Object)
		if err != nil {
			return err
		}
		if out.Len()+len(document) > fileBytes {
			break
		}
		out.WriteString("---\n")
		out.Write(document)
		written++
	}
	a.addFile(name, out.Bytes())
	if more || written < total {
		a.noteProblem(name, fmt.Errorf("it has %d of the newest objects, and there are at least %d", written, total))
	}
	return err
}

// listKind reads the objects of a kind; more reports that there are others. Those that were read before
// an error are returned with it.
func listKind(ctx context.Context, r client.Reader, k *bundleKind) (found []unstructured.Unstructured, more bool, err error) {
	for next := ""; ; {
		answer := &unstructured.UnstructuredList{}
		answer.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		options := append(slices.Clone(k.options), client.Limit(page), client.Continue(next))
		if err := r.List(ctx, answer, options...); err != nil {
			return found, false, err
		}
		for i := range answer.Items {
			item := &answer.Items[i]
			if (len(k.only) == 0 || slices.Contains(k.only, item.GetName())) && (k.keep == nil || k.keep(item.GetLabels())) {
				found = append(found, *item)
			}
		}
		if next = answer.GetContinue(); next == "" || len(found) >= readAtMost {
			return found, next != "", nil
		}
	}
}
