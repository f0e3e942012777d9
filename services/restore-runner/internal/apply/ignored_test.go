package apply_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// TestContentHashesIgnoreOnlyWhatARestoreIgnores compares objects that differ in fields which the
// manifest's content hash leaves out.
func TestContentHashesIgnoreOnlyWhatARestoreIgnores(t *testing.T) {
	t.Parallel()
	for resource, gvk := range map[string]schema.GroupKind{
		"widgets.example.com": {Group: "example.com", Kind: "Widget"}, "leases.coordination.k8s.io": {Group: "coordination.k8s.io", Kind: "Lease"},
		"configmaps": {Kind: "ConfigMap"}, "endpoints": {Kind: "Endpoints"}, "persistentvolumes": {Kind: "PersistentVolume"},
		"persistentvolumeclaims": {Kind: "PersistentVolumeClaim"}, "jobs.batch": {Group: "batch", Kind: "Job"},
	} {
		paths := manifest.Ignored(gvk.Group, gvk.Kind)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			if path[0] == "apiVersion" || path[0] == "kind" { // of the key, which has no version
				continue
			}
			plain := comparableWith(gvk, resource, path, nil)
			require.Equal(t, plain, comparableWith(gvk, resource, path, "a value"), "%s %s", resource, strings.Join(path, "/"))
		}
		other := comparableWith(gvk, resource, []string{"spec", "other"}, nil)
		require.NotEqual(t, other, comparableWith(gvk, resource, []string{"spec", "other"}, "a value"), resource)
	}
}

// comparableWith returns an object with a value at a path, as a restore compares it.
func comparableWith(gk schema.GroupKind, resource string, path []string, value any) map[string]any {
	obj := map[string]any{"apiVersion": "v1", "kind": gk.Kind, "metadata": map[string]any{"name": "x"}}
	at := obj
	for _, key := range path[:len(path)-1] {
		inner, ok := at[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[key] = inner
		}
		at = inner
	}
	if value != nil {
		at[path[len(path)-1]] = value
	}
	apply.NormalizeObject(obj, schema.ParseGroupResource(resource), &apply.ResetOptions{})
	apply.MakeComparable(obj)
	return obj
}
