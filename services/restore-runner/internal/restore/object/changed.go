package object

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Check refuses another object in the place of o: another than that of the given name, unless that is empty, and
// one of a kind that it cannot become. by names who changed it.
func (l *Loader) Check(o *Object, by string, changed *action.Object, name string) error {
	if changed == nil {
		return fmt.Errorf("%s: returned no object", by)
	}
	content, err := changed.Content()
	if err != nil {
		return fmt.Errorf("%s: %w", by, err)
	}
	got := TextAt(MapAt(content, "metadata"), "name")
	_, err = l.KindOf(o, changed)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", by, err)
	case got == "", name != "" && got != name:
		return fmt.Errorf("%s: renamed it to %q", by, got)
	}
	return nil
}

// fixedKinds stay what they are, and nothing becomes one: a restore handles them apart, or what belongs to them.
var fixedKinds = map[string]bool{
	"namespaces": true, "customresourcedefinitions.apiextensions.k8s.io": true, "persistentvolumes": true,
	"persistentvolumeclaims": true, "endpoints": true,
}

// KindOf returns the kind of what actions made of o: that of the plan, in whatever version, or another that the
// cluster serves.
func (l *Loader) KindOf(o *Object, changed *action.Object) (*plan.Kind, error) {
	content, err := changed.Content()
	if err != nil {
		return nil, err
	}
	gv, err := groupVersion(content)
	if err != nil {
		return nil, err
	}
	planned, gvk := l.Plan.Kind(o.Node), gv.WithKind(TextAt(content, "kind"))
	if gvk.GroupKind() == planned.GVK.GroupKind() {
		return planned, nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("made it a %s of %q, and it was a %s of %q: %s", gvk.Kind, gv, planned.GVK.Kind, planned.GVK.GroupVersion(), why)
	}
	served, ok := l.Catalog.OfKind(gvk.GroupKind())
	switch {
	case !ok:
		return nil, refuse("the cluster does not serve the new kind")
	case fixedKinds[planned.String()] || fixedKinds[served.GroupResource().String()]:
		return nil, refuse("a restore handles one of the two apart, which nothing else becomes")
	}
	return plan.NewKind(gvk, served.Name, served.Namespaced), nil
}

// Replace makes what actions left the body of o. An action may still hold what it returned, so that
// the parts that change are copied.
func (l *Loader) Replace(ctx context.Context, o *Object, changed *action.Object) (err error) {
	content, err := changed.Content()
	if err != nil {
		return err
	}
	if o.Kind != l.Plan.Kind(o.Node) { // its resets follow, and what was stored with it is of the kind that it was
		o.Status, o.Fields, o.Lock, o.Stored = nil, nil, false, ""
		content = runtime.DeepCopyJSON(content)
	}
	body := maps.Clone(content)
	meta := maps.Clone(MapAt(content, "metadata"))
	if labels := MapAt(meta, "labels"); labels != nil {
		meta["labels"] = maps.Clone(labels)
	}
	body["metadata"] = meta
	apply.Anonymize(body)
	o.Body = body
	o.Target, err = l.targetOf(ctx, o)
	return err
}
