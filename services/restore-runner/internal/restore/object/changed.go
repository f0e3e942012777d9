package object

import (
	"context"
	"fmt"
	"maps"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Check refuses another object in the place of o, of another kind or another name than the given
// one, unless that is empty. by names who changed it.
func (l *Loader) Check(o *Object, by string, changed *action.Object, name string) error {
	if changed == nil {
		return fmt.Errorf("%s: returned no object", by)
	}
	content, err := changed.Content()
	if err != nil {
		return fmt.Errorf("%s: %w", by, err)
	}
	kind, got := l.Plan.Kind(o.Node), TextAt(MapAt(content, "metadata"), "name")
	gv, err := groupVersion(content)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", by, err)
	case gv.Group != kind.GVK.Group || TextAt(content, "kind") != kind.GVK.Kind:
		return fmt.Errorf("%s: made it a %s of %q", by, TextAt(content, "kind"), gv)
	case got == "", name != "" && got != name:
		return fmt.Errorf("%s: renamed it to %q", by, got)
	}
	return nil
}

// Replace makes what actions left the body of o. An action may still hold what it returned, so that
// the parts that change are copied.
func (l *Loader) Replace(ctx context.Context, o *Object, changed *action.Object) (err error) {
	content, err := changed.Content()
	if err != nil {
		return err
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
