package restore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

// item is an object on its way into the cluster.
type item struct {
	node   int32
	body   map[string]any
	target apply.Target
	refs   []any // owner references as stored
	fields []any // managed fields as stored, where they must come back
}

// object restores one object that is neither a definition nor a Namespace.
func (r *run) object(ctx context.Context, v int32) {
	if reason := r.lostNamespace(r.Plan.Target(v)); reason != "" {
		r.fail(v, fmt.Errorf("namespace %q: %s", r.Plan.Target(v), reason))
		r.settle(ctx, v, apply.Result{})
		return
	}
	it, err := r.load(ctx, v)
	if err != nil {
		r.end(ctx, v, err)
		return
	}
	if skip := r.skipped(it); skip != nil {
		r.skip(ctx, v, skip)
		return
	}
	r.create(ctx, it)
}

// end is the outcome of an object that got no further than err. When ctx ended the object has no outcome: whoever goes on
// restores it.
func (r *run) end(ctx context.Context, v int32, err error) {
	if ctx.Err() != nil {
		return
	}
	r.fail(v, err)
	r.settle(ctx, v, apply.Result{})
}

func (r *run) skip(ctx context.Context, v int32, skip *reset.Skip) {
	message := "not restored: " + skip.Reason
	if skip.Report {
		r.Recorder.Warn(v, message)
	} else {
		r.Recorder.Info(v, message)
	}
	r.Recorder.Done(v, apply.Skipped)
	r.settle(ctx, v, apply.Result{})
}

// load reads and decodes a body and checks that it is what the plan says.
func (r *run) load(ctx context.Context, v int32) (*item, error) {
	raw, err := r.Source.Read(ctx, r.Plan.Item(v))
	if err != nil {
		return nil, fmt.Errorf("read from the backup: %w", err)
	}
	it := &item{node: v}
	if err := utiljson.Unmarshal(raw, &it.body); err != nil {
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
	it.refs, it.fields = list(meta, "ownerReferences"), appliedFields(list(meta, "managedFields"))
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
	served, ok := r.catalog.Lookup(kind.GroupResource())
	if !ok {
		return apply.Target{}, fmt.Errorf("the cluster does not serve %s", kind)
	}
	t := apply.Target{GVR: gv.WithResource(kind.Resource), Namespace: r.Plan.Target(it.node), Name: r.Plan.Node(it.node).Name}
	if served.Namespaced != (t.Namespace != "") {
		return t, fmt.Errorf("the scope of %s in the cluster is not that in the backup", kind)
	}
	return t, nil
}

// skipped tells whether the object stays out.
func (r *run) skipped(it *item) *reset.Skip {
	kind := r.Plan.Kind(it.node)
	if skip := reset.Skipped(it.body, kind.GroupResource()); skip != nil {
		return skip
	}
	switch kind.String() {
	case "pods":
		if job := r.remade(it); job != "" {
			return &reset.Skip{Reason: job + " is restored and makes its own pods", Report: true}
		}
	case "persistentvolumes":
		if r.Volumes.Reprovision(it.target.Name) {
			return &reset.Skip{Reason: "its claim gets a new volume"}
		}
	}
	return nil
}

// create brings the object into the cluster and gives it its owners.
func (r *run) create(ctx context.Context, it *item) {
	kind := r.Plan.Kind(it.node)
	r.complain(it)
	reset.Object(it.body, kind.GroupResource(), it.target.Namespace, &r.reset)
	now, later := r.ownersOf(it)
	if len(now) > 0 {
		it.metadata()["ownerReferences"] = now
	}
	result := r.client.Apply(ctx, apply.Request{
		Target: it.target, Kind: kind.GVK.Kind, Object: it.body,
		Normalize: r.normalizeLive(it),
		Update:    r.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
		Mine:      r.mine(), Resumed: r.Resumed, New: r.fresh[kind.GroupResource()],
	})
	if result.Err != nil {
		r.end(ctx, it.node, result.Err)
		return
	}
	if result.Warning != "" {
		r.Recorder.Warn(it.node, result.Warning)
	}
	if result.Fresh {
		r.completeFields(ctx, it, result.UID)
	}
	r.Recorder.Done(it.node, result.Action)
	if result.Fresh {
		r.patchOwners(ctx, r.owners.Await(it.node, result.UID, it.target.Namespace, now, later))
	}
	r.settle(ctx, it.node, result)
}

// complain reports what the object asks for and this version does not do.
func (r *run) complain(it *item) {
	if annotation := reset.Unsupported(it.body, r.Plan.Kind(it.node).GroupResource()); annotation != "" {
		r.Recorder.Error(it.node, "annotation "+annotation+" asks for what this version does not do; the object is restored without it")
	}
	if r.Plan.Kind(it.node).String() != "persistentvolumeclaims" {
		return
	}
	spec, ok := it.body["spec"].(map[string]any)
	if !ok {
		return
	}
	name, ok := spec["volumeName"].(string)
	if problem := r.Volumes.Problem(name); ok && problem != "" {
		r.Recorder.Error(it.node, "volume "+name+": "+problem)
	}
}

// normalizeLive makes a live object comparable with the stored one. What the mapping and the decisions about volumes
// changed in the stored one is in the live one already.
func (r *run) normalizeLive(it *item) func(map[string]any) {
	spec, ok := it.body["spec"].(map[string]any)
	unbound := !ok || spec["volumeName"] == nil
	return func(live map[string]any) {
		reset.Normalize(live, r.Plan.Kind(it.node).GroupResource(), &reset.Options{
			PreserveNodePorts: r.reset.PreserveNodePorts,
			Reprovision:       func(string) bool { return unbound },
		})
	}
}

// mine recognizes objects that this restore created.
func (r *run) mine() func(map[string]any) bool {
	want := velerov1.LabelValue(r.Restore)
	return func(labels map[string]any) bool { return labels[velerov1.LabelRestoreName] == want }
}

func (it *item) metadata() map[string]any {
	meta, ok := it.body["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		it.body["metadata"] = meta
	}
	return meta
}

func list(o map[string]any, key string) []any {
	l, ok := o[key].([]any)
	if !ok {
		return nil
	}
	return l
}

// remade returns the restored Job that makes this pod anew, "" when there is none.
func (r *run) remade(it *item) string {
	for _, ref := range it.refs {
		value, owner, ok := reference(ref)
		if !ok || plan.Relate("pods", owner) != plan.Remake {
			continue
		}
		if node, ok := r.Plan.Owner(owner.UID); ok && r.Recorder.Action(node) != apply.Failed {
			return "Job " + text(value, "name")
		}
	}
	return ""
}

func groupVersion(body map[string]any) (schema.GroupVersion, error) {
	version := text(body, "apiVersion")
	if version == "" || text(body, "kind") == "" {
		return schema.GroupVersion{}, errors.New("apiVersion or kind: missing")
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return gv, fmt.Errorf("apiVersion: %w", err)
	}
	return gv, nil
}
