package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Source reads the bodies of items. Safe for concurrent use.
type Source interface {
	Read(ctx context.Context, item manifest.Item) ([]byte, error)
}

// Loader reads the objects of a plan. Safe for concurrent use.
type Loader struct {
	Source  Source
	Plan    *plan.Plan
	Catalog *Catalog
	// Versions are those of objects whose own version is not served.
	Versions *Versions
	// Converted reports that actions get the objects of a kind, and may make one that the cluster takes. Nil is
	// always false.
	Converted func(*plan.Kind) bool
}

// Load reads and decodes a body and checks that it is the object of the plan.
func (l *Loader) Load(ctx context.Context, v int32) (*Object, error) {
	raw, err := l.Source.Read(ctx, l.Plan.Item(v))
	if err != nil {
		return nil, fmt.Errorf("read from the backup: %w", err)
	}
	o := &Object{Node: v, Kind: l.Plan.Kind(v), Raw: raw}
	if o.Body, err = jsonlimit.UnmarshalObject(raw); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	meta, ok := o.Body["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("metadata: missing or not an object")
	}
	if meta["name"] != l.Plan.Name(v) {
		return nil, fmt.Errorf("metadata.name: is %q in an object stored as %q", meta["name"], l.Plan.Name(v))
	}
	o.Target, err = l.targetOf(ctx, o)
	if err != nil && (IsEnding(ctx, err) || l.Converted == nil || !l.Converted(o.Kind)) {
		return nil, err // else Replace decides
	}
	o.Status = o.Body["status"]
	o.Lock = apply.IsLock(o.Body, l.Plan.Kind(v).String())
	o.Owners, o.Fields = ListAt(meta, "ownerReferences"), appliedFields(ListAt(meta, "managedFields"))
	return o, nil
}

// targetOf finds where the object belongs in this cluster: the version is the stored object's own while the
// cluster serves it, else the object gets another.
func (l *Loader) targetOf(ctx context.Context, o *Object) (apply.Target, error) {
	kind := o.Kind
	t := apply.Target{Namespace: l.Plan.Target(o.Node), Name: cmp.Or(o.Renamed, l.Plan.Name(o.Node))}
	if o.Moved != nil {
		t.Namespace, t.Name = o.Moved.Namespace, o.Moved.Name
	}
	gv, err := groupVersion(o.Body)
	if err != nil {
		return t, err
	}
	if gv.Group != kind.GVK.Group {
		return t, fmt.Errorf("apiVersion: is %q in an object stored under group %q", gv, kind.GVK.Group)
	}
	served, ok := l.Catalog.Lookup(kind.GroupResource())
	if !ok {
		return t, fmt.Errorf("the cluster does not serve %s", kind)
	}
	if served.Kind.Version != gv.Version && l.Versions != nil {
		stored := gv
		if gv.Version, err = l.Versions.Served(ctx, gv.WithResource(kind.Resource), served.Kind.Version); err != nil {
			return t, err
		}
		if gv != stored {
			if changesMeaning(kind.GroupResource(), o.Body) {
				return t, fmt.Errorf("%w %s, only %s, in which its empty selector means all Pods instead of none", errVersion, stored, gv)
			}
			o.Body["apiVersion"], o.Stored = gv.String(), stored.String()
		}
	}
	t.GVR = gv.WithResource(kind.Resource)
	if served.Namespaced != (t.Namespace != "") {
		return t, fmt.Errorf("the scope of %s in the cluster is not that in the backup", kind)
	}
	return t, nil
}

// appliedFields returns managed fields that must survive a restore: server-side appliers recognize
// by them what is theirs, and what they left out to have it removed. Without an applier nothing
// depends on them, and writing them back, which Velero always does, would be a second request for
// each object.
func appliedFields(fields []any) []any {
	for _, entry := range fields {
		if e, ok := entry.(map[string]any); ok && TextAt(e, "operation") == "Apply" {
			return fields
		}
	}
	return nil
}

func groupVersion(body map[string]any) (schema.GroupVersion, error) {
	version := TextAt(body, "apiVersion")
	if version == "" || TextAt(body, "kind") == "" {
		return schema.GroupVersion{}, errors.New("apiVersion or kind: missing")
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return gv, fmt.Errorf("apiVersion: %w", err)
	}
	return gv, nil
}
