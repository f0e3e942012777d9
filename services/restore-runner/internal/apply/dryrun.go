package apply

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// DryRun makes a client find out what it would do: creations are noted, and existing objects are
// patched with dryRun=All. Safe for concurrent use.
type DryRun struct {
	// Server has creations be sent with dryRun=All too, to reveal what admission refuses.
	Server bool

	mu    sync.Mutex
	fresh map[string]bool // namespaces that would be created: nothing is in them
	needs []string        // refusals of Pods that lack what would be created
	kinds map[schema.GroupVersionResource]bool
}

// ForDryRun returns a client that changes nothing; with nil it is c.
func (c *Client) ForDryRun(d *DryRun) *Client {
	if d == nil {
		return c
	}
	dry := *c
	dry.dry = d
	return &dry
}

// AddKind notes a kind that a definition of the restore would define.
func (d *DryRun) AddKind(gvr schema.GroupVersionResource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kinds == nil {
		d.kinds = map[schema.GroupVersionResource]bool{}
	}
	d.kinds[gvr] = true
}

func (d *DryRun) definesKind(gvr schema.GroupVersionResource) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kinds[gvr]
}

// isFresh reports that a namespace would be created. False without a dry run.
func (d *DryRun) isFresh(namespace string) bool {
	if d == nil || namespace == "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fresh[namespace]
}

// isFreshNamespace reports that t is a Namespace which would be created.
func (d *DryRun) isFreshNamespace(t Target) bool { return isNamespace(t) && d.isFresh(t.Name) }

func isNamespace(t Target) bool { return t.GVR.Group == "" && t.GVR.Resource == "namespaces" }

// noteCreation returns the identity that stands for an object which would be created.
func (d *DryRun) noteCreation(t Target) Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch t.GVR.GroupResource().String() {
	case "namespaces":
		if d.fresh == nil {
			d.fresh = map[string]bool{}
		}
		d.fresh[t.Name] = true
	case "serviceaccounts":
		d.needs = append(d.needs, lacksAccount+t.Namespace+"/"+t.Name+":")
	case "priorityclasses.scheduling.k8s.io":
		d.needs = append(d.needs, "no PriorityClass with name "+t.Name+" was found")
	case "runtimeclasses.node.k8s.io":
		d.needs = append(d.needs, fmt.Sprintf("RuntimeClass %q not found", t.Name))
	}
	return Identity{UID: types.UID("planned/" + strings.Join(t.resourcePath(t.Name), "/")), Version: "planned"}
}

// plannedResult is that of an object which would be created once one of its name, which is being
// deleted, is gone.
func (d *DryRun) plannedResult(t Target, warning string) Result {
	id := d.noteCreation(t)
	return Result{Action: Created, UID: id.UID, Version: id.Version, Fresh: true, Warning: warning}
}

// isUnknowable reports that a creation with dryRun=All says nothing: what it needs would be created
// before it, or a webhook does not support dry runs.
func (d *DryRun) isUnknowable(t Target, err error) bool {
	if !apierrors.IsForbidden(err) || t.GVR.Resource != "pods" {
		return apierrors.IsNotFound(err) || lacksDryRun(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.needs, func(refusal string) bool { return strings.Contains(err.Error(), refusal) })
}

// lacksDryRun reports that a webhook refuses because it does not support dry runs.
func lacksDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

func absentError(t Target) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: t.GVR.Resource + " " + t.Name + " would be created"}}
}

// plannedFields returns the paths that a merge patch changes; none without a dry run.
func (c *Client) plannedFields(patch []byte) []string {
	if c.dry == nil {
		return nil
	}
	return changedFields(patch)
}

// maxPath is the length from which a path names a field with everything in it, in bytes: objects may be nested
// thousands deep.
const maxPath = 1 << 10

// changedFields returns the paths that a merge patch changes, sorted, without what every restore
// changes: its labels, and the version that it is for.
func changedFields(patch []byte) []string {
	var root map[string]any
	if json.Unmarshal(patch, &root) != nil {
		return nil
	}
	if meta := memberObject(root, "metadata"); meta != nil {
		delete(meta, "resourceVersion")
		labels := memberObject(meta, "labels")
		for key := range RestoreLabels(labels) {
			delete(labels, key)
		}
	}
	var paths []string
	var visit func(prefix string, value map[string]any)
	visit = func(prefix string, value map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if child, ok := value[key].(map[string]any); ok && len(prefix) < maxPath {
				visit(prefix+key+".", child)
				continue
			}
			paths = append(paths, prefix+key)
		}
	}
	visit("", root)
	return paths
}

// differingFields returns the paths in which a stored object differs from the live one.
func differingFields(live, stored map[string]any) []string {
	patch, err := mergePatch(live, stored)
	if err != nil {
		return nil
	}
	return changedFields(patch)
}
