package crds

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// Established reports whether the API server serves a definition.
func Established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// MissingPaths names what Complete would add to have and objects cannot do without: versions, as "v1", and
// fields and values, as "v1.spec.template". The list is sorted within a version; it is empty where
// objects of want are stored whole.
func MissingPaths(have, want *apiextensionsv1.CustomResourceDefinition) []string {
	var absent []string
	for i := range want.Spec.Versions {
		w := &want.Spec.Versions[i]
		at := slices.IndexFunc(have.Spec.Versions, func(h apiextensionsv1.CustomResourceDefinitionVersion) bool { return h.Name == w.Name && h.Served })
		switch {
		case at < 0:
			absent = append(absent, w.Name)
		case w.Schema != nil && w.Schema.OpenAPIV3Schema != nil && have.Spec.Versions[at].Schema != nil && have.Spec.Versions[at].Schema.OpenAPIV3Schema != nil:
			absent = missingSchemaPaths(absent, w.Name, have.Spec.Versions[at].Schema.OpenAPIV3Schema, w.Schema.OpenAPIV3Schema)
		}
	}
	return absent
}

func missingSchemaPaths(absent []string, path string, have, want *apiextensionsv1.JSONSchemaProps) []string {
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		w := want.Properties[name]
		h, ok := have.Properties[name]
		switch {
		case ok:
			absent = missingSchemaPaths(absent, path+"."+name, &h, &w)
		case have.Type == "object" && have.AdditionalProperties == nil && !ptr.Deref(have.XPreserveUnknownFields, false):
			absent = append(absent, path+"."+name)
		}
	}
	if have.Items != nil && want.Items != nil && have.Items.Schema != nil && want.Items.Schema != nil {
		absent = missingSchemaPaths(absent, path+"[]", have.Items.Schema, want.Items.Schema)
	}
	if len(have.Enum) == 0 {
		return absent
	}
	for _, value := range want.Enum {
		if !slices.ContainsFunc(have.Enum, func(h apiextensionsv1.JSON) bool { return string(h.Raw) == string(value.Raw) }) {
			absent = append(absent, path+"="+string(value.Raw))
		}
	}
	return absent
}
