package manifest_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// schemaObject is an object of the JSON schema.
type schemaObject struct {
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]schemaObject    `json:"$defs"`
}

// jsonFields returns the JSON names of the fields of types, and those that are always written.
func jsonFields(types ...reflect.Type) (all, always []string) {
	for _, t := range types {
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			all = append(all, name)
			if options == "" {
				always = append(always, name)
			}
		}
	}
	return all, always
}

// TestTheJSONSchemaHasEveryField compares the published schema with the types that read and write a
// manifest.
func TestTheJSONSchemaHasEveryField(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/formats/manifest-" + manifest.FormatVersion + ".schema.json")
	require.NoError(t, err)
	var schema schemaObject
	require.NoError(t, json.Unmarshal(text, &schema))
	document, required := jsonFields(reflect.TypeFor[manifest.Header](), reflect.TypeFor[manifest.Trailer]())
	require.ElementsMatch(t, append(document, "kinds", "index", "directory"), slices.Collect(maps.Keys(schema.Properties)))
	require.ElementsMatch(t, append(required, "kinds", "index"), schema.Required)
	for name, of := range map[string]reflect.Type{"item": reflect.TypeFor[manifest.Item](), "cut": reflect.TypeFor[manifest.Cut]()} {
		fields, required := jsonFields(of)
		require.ElementsMatch(t, fields, slices.Collect(maps.Keys(schema.Defs[name].Properties)), name)
		require.ElementsMatch(t, required, schema.Defs[name].Required, name)
	}
}
