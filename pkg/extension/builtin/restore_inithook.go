package builtin

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
)

// waitContainer is the init container by which Velero's file system restores hold a Pod back.
const waitContainer = "restore-wait"

// restoreInitHook adds the init containers to a Pod that its annotations, or the spec of the
// restore, ask for. One that is in the Pod under the same name, as that of an earlier restore is,
// makes way: the API server refuses two of one name.
type restoreInitHook struct{ named }

func (a restoreInitHook) Execute(_ context.Context, o, _ *action.Object, r *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	u, err := o.Copy()
	if err != nil {
		return action.RestoreResult{}, err
	}
	target := cmp.Or(r.Restore().Spec.NamespaceMapping[u.GetNamespace()], u.GetNamespace())
	pod := &hook.Pod{Namespace: target, Labels: labels.Set(u.GetLabels()), Annotations: labels.Set(u.GetAnnotations())}
	added, err := hook.InitContainers(&r.Restore().Spec.Hooks, pod, u.GetName())
	if err != nil || len(added) == 0 {
		return action.RestoreResult{Object: o}, err
	}
	spec, err := childObject(u.Object, "spec")
	if err != nil {
		return action.RestoreResult{}, err
	}
	if spec == nil {
		spec = object{}
		u.Object["spec"] = spec
	}
	present, ok := spec["initContainers"].([]any)
	if v := spec["initContainers"]; !ok && v != nil {
		return action.RestoreResult{}, &fieldError{"spec.initContainers", "a list", v}
	}
	present = containersExcept(present, added)
	var all []any
	if len(present) > 0 {
		if first, ok := present[0].(object); ok && first["name"] == waitContainer {
			all, present = append(all, first), present[1:]
		}
	}
	for _, c := range added {
		all = append(all, c)
	}
	spec["initContainers"] = append(all, present...)
	return action.RestoreResult{Object: action.FromContent(u.Object)}, nil
}

// containersExcept returns the containers whose name none of the others has.
func containersExcept(containers []any, others []map[string]any) (out []any) {
	names := map[string]bool{}
	for _, c := range others {
		if name, ok := c["name"].(string); ok {
			names[name] = true
		}
	}
	for _, v := range containers {
		c, _ := v.(object)
		if name, named := c["name"].(string); named && names[name] {
			continue
		}
		out = append(out, v)
	}
	return out
}
