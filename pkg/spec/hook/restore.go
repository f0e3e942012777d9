package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// CheckRestore finds what is wrong with the hooks of a restore. Fields begin with "spec.hooks".
func CheckRestore(hooks *velerov1.RestoreHooks) (out []Problem) {
	for i := range hooks.Resources {
		set, path := &hooks.Resources[i], fmt.Sprintf("spec.hooks.resources[%d]", i)
		out = append(out, restoreScope(set).checkScope(path)...)
		for n := range set.PostHooks {
			out = append(out, checkRestoreHook(fmt.Sprintf("%s.postHooks[%d]", path, n), &set.PostHooks[n])...)
		}
	}
	return out
}

func checkRestoreHook(path string, h *velerov1.RestoreResourceHook) (out []Problem) {
	if h.Exec == nil && h.Init == nil {
		return []Problem{{path, "names neither exec nor init"}}
	}
	if e := h.Exec; e != nil {
		out = append(out, checkExec(path+".exec", e.Container, e.Command, e.OnError)...)
		out = append(out, checkTimeout(path+".exec.execTimeout", e.ExecTimeout.Duration)...)
		out = append(out, checkTimeout(path+".exec.waitTimeout", e.WaitTimeout.Duration)...)
	}
	if h.Init == nil {
		return out
	}
	out = append(out, checkTimeout(path+".init.timeout", h.Init.Timeout.Duration)...)
	if len(h.Init.InitContainers) == 0 {
		out = append(out, Problem{path + ".init.initContainers", "is required"})
	}
	for i := range h.Init.InitContainers {
		if _, err := decodeContainer(h.Init.InitContainers[i].Raw); err != nil {
			out = append(out, Problem{fmt.Sprintf("%s.init.initContainers[%d]", path, i), err.Error()})
		}
	}
	return out
}

func restoreScope(set *velerov1.RestoreResourceHookSpec) *hookScope {
	return &hookScope{
		includedNamespaces: set.IncludedNamespaces, excludedNamespaces: set.ExcludedNamespaces,
		includedResources: set.IncludedResources, excludedResources: set.ExcludedResources, labelSelector: set.LabelSelector,
	}
}

var errContainer = errors.New("a container needs name, image and command")

// decodeContainer decodes an init container, all fields of which are kept.
func decodeContainer(raw []byte) (map[string]any, error) {
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("is not a container: %w", err)
	}
	name, _ := c["name"].(string)
	image, _ := c["image"].(string)
	command, _ := c["command"].([]any)
	if name == "" || image == "" || len(command) == 0 {
		return nil, errContainer
	}
	return c, nil
}

// eachHook calls do with the hooks of a spec for a Pod, which is in its target namespace, in their order,
// and with the field of each. Lists of resources are not looked at: hooks of other objects do not
// exist (Velero 1.18).
func eachHook(hooks *velerov1.RestoreHooks, pod *Pod, do func(path string, h *velerov1.RestoreResourceHook) error) error {
	for i := range hooks.Resources {
		set := &hooks.Resources[i]
		selector, err := (&hookScope{labelSelector: set.LabelSelector}).parseSelector()
		if err != nil {
			return fmt.Errorf("spec.hooks.resources[%d]: %w", i, err)
		}
		m := matcher{included: set.IncludedNamespaces, excluded: set.ExcludedNamespaces, labels: selector}
		if !m.matchesPod(pod.Namespace, pod.labelSet()) {
			continue
		}
		for n := range set.PostHooks {
			if err := do(fmt.Sprintf("spec.hooks.resources[%d].postHooks[%d]", i, n), &set.PostHooks[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// InitContainers returns the init containers that a restore adds to a Pod, which is in its target
// namespace: those of its annotations, or else those of the spec's hooks, in their order. What cannot
// be used is an error.
func InitContainers(hooks *velerov1.RestoreHooks, pod *Pod, name string) ([]map[string]any, error) {
	c, err := annotatedInit(pod, name)
	if c != nil || err != nil {
		return c, err
	}
	err = eachHook(hooks, pod, func(path string, h *velerov1.RestoreResourceHook) error {
		if h.Init == nil {
			return nil
		}
		for _, raw := range h.Init.InitContainers {
			added, err := decodeContainer(raw.Raw)
			if err != nil {
				return fmt.Errorf("%s.init.initContainers: %w", path, err)
			}
			c = append(c, added)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// annotatedInit returns the init container that the annotations of a Pod define. One without a name
// gets the same name at every call.
func annotatedInit(pod *Pod, name string) ([]map[string]any, error) {
	a := hookAnnotations{pod.annotationAt, velerov1.AnnotationInitRestoreHookPrefix}
	image := a.get(a.prefix + "container-image")
	if image == "" {
		return nil, a.orphanError("container-image")
	}
	if a.get(a.prefix+"command") == "" {
		return nil, a.errorAt("command", "%w", errNoCommand)
	}
	command, err := a.parseCommand()
	if err != nil {
		return nil, err
	}
	if _, err := a.parseDuration("timeout", 0); err != nil {
		return nil, err
	}
	list := make([]any, len(command))
	for i := range command {
		list[i] = command[i]
	}
	called := a.get(a.prefix + "container-name")
	if called == "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(pod.Namespace + "/" + name))
		called = fmt.Sprintf("velero-restore-init-%08x", h.Sum32())
	}
	return []map[string]any{{"name": called, "image": image, "command": list}}, nil
}
