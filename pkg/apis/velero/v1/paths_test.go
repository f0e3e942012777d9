package v1_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// ours limits the walk to the types of this repository: the fields of Kubernetes types are
// Kubernetes' business.
const ours = "github.com/holdfast-io/holdfast/pkg/apis/"

// fieldType returns the type of a top-level field by its JSON name.
func fieldType(t *testing.T, obj runtime.Object, name string) reflect.Type {
	typ := reflect.TypeOf(obj).Elem()
	for f := range typ.Fields() {
		if n, _, _ := strings.Cut(f.Tag.Get("json"), ","); n == name {
			return f.Type
		}
	}
	require.Failf(t, "field missing", "%s has no field %s", typ, name)
	return nil
}

// jsonPaths collects the JSON paths of a type, lists and pointers seen through.
func jsonPaths(typ reflect.Type, prefix string, into map[string]bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || !strings.HasPrefix(typ.PkgPath(), ours) {
		return
	}
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := prefix + "." + name
		if options == "inline" {
			path = prefix
		} else {
			into[path] = true
		}
		jsonPaths(f.Type, path, into)
	}
}

// documentPaths collects the paths of a document the same way.
func documentPaths(value any, prefix string, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			into[prefix+"."+name] = true
			documentPaths(child, prefix+"."+name, into)
		}
	case []any:
		for _, child := range v {
			documentPaths(child, prefix, into)
		}
	}
}
