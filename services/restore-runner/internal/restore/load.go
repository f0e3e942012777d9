package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
)

// load reads and decodes a body and checks that it is what the plan says.
func (r *run) load(ctx context.Context, v int32) (*item, error) {
	raw, err := r.Source.Read(ctx, r.Plan.Item(v))
	if err != nil {
		return nil, fmt.Errorf("read from the backup: %w", err)
	}
	it := &item{node: v, raw: raw}
	if it.body, err = jsonlimit.UnmarshalObject(raw); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	meta, ok := it.body["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("metadata: missing or not an object")
	}
	if meta["name"] != r.Plan.Node(v).Name {
		return nil, fmt.Errorf("metadata.name: is %q in an object stored as %q", meta["name"], r.Plan.Node(v).Name)
	}
	if it.target, err = r.target(it); err != nil {
		return nil, err
	}
	it.refs, it.fields = decoded.List(meta, "ownerReferences"), appliedFields(decoded.List(meta, "managedFields"))
	return it, nil
}

// target finds where the object belongs in this cluster: the version is the stored object's own.
func (r *run) target(it *item) (apply.Target, error) {
	kind := r.Plan.Kind(it.node)
	gv, err := groupVersion(it.body)
	if err != nil {
		return apply.Target{}, err
	}
	if gv.Group != kind.GVK.Group {
		return apply.Target{}, fmt.Errorf("apiVersion: is %q in an object stored under group %q", gv, kind.GVK.Group)
	}
	served, ok := r.catalog.Load().Lookup(kind.GroupResource())
	if !ok {
		return apply.Target{}, fmt.Errorf("the cluster does not serve %s", kind)
	}
	t := apply.Target{GVR: gv.WithResource(kind.Resource), Namespace: r.Plan.Target(it.node), Name: cmp.Or(it.renamed, r.Plan.Node(it.node).Name)}
	if served.Namespaced != (t.Namespace != "") {
		return t, fmt.Errorf("the scope of %s in the cluster is not that in the backup", kind)
	}
	return t, nil
}

// skipped reports whether the object stays out.
func (r *run) skipped(it *item) *reset.Skip {
	kind := r.Plan.Kind(it.node)
	if skip := reset.Skipped(it.body, kind.GroupResource()); skip != nil {
		return skip
	}
	if r.Runs.LeavesOut(kind.GroupResource()) {
		return &reset.Skip{Reason: "it would run again; the annotation " + holdfast.AnnotationRunAgain + " of a restore asks for it all the same", Report: true}
	}
	if owner := r.remade(it); owner != "" {
		return &reset.Skip{Reason: owner + ", which is restored or left out, makes such objects itself", Report: true}
	}
	if kind.String() == "persistentvolumes" && r.Volumes.Reprovision(it.target.Name) {
		return &reset.Skip{Reason: "its claim gets a new volume"}
	}
	return nil
}

// remade returns the owner that makes this object anew, "" when there is none.
func (r *run) remade(it *item) string {
	for _, ref := range it.refs {
		value, owner, ok := reference(ref)
		if !ok || r.relate(it.node, owner) != plan.Remake {
			continue
		}
		if node, ok := r.ownerNode(owner.UID); ok && r.Recorder.Action(node) != apply.Failed {
			return relink.Name(value)
		}
	}
	return ""
}

func groupVersion(body map[string]any) (schema.GroupVersion, error) {
	version := decoded.Text(body, "apiVersion")
	if version == "" || decoded.Text(body, "kind") == "" {
		return schema.GroupVersion{}, errors.New("apiVersion or kind: missing")
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return gv, fmt.Errorf("apiVersion: %w", err)
	}
	return gv, nil
}
