package crds

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Complete adds to have what want has and have lacks: versions, short names, printer columns,
// schema fields and enum values. Nothing is removed, changed or made required. It reports whether
// have changed.
func Complete(have, want *apiextensionsv1.CustomResourceDefinition) bool {
	changed := false
	for _, name := range want.Spec.Names.ShortNames {
		if !slices.Contains(have.Spec.Names.ShortNames, name) {
			have.Spec.Names.ShortNames = append(have.Spec.Names.ShortNames, name)
			changed = true
		}
	}
	for i := range want.Spec.Versions {
		v := &want.Spec.Versions[i]
		at := slices.IndexFunc(have.Spec.Versions, func(h apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return h.Name == v.Name
		})
		if at < 0 {
			added := *v.DeepCopy()
			// Exactly one version is stored; the present definition has it.
			added.Storage = false
			have.Spec.Versions = append(have.Spec.Versions, added)
			changed = true
			continue
		}
		changed = completeVersion(&have.Spec.Versions[at], v) || changed
	}
	return changed
}

func completeVersion(have, want *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	changed := false
	if want.Served && !have.Served {
		have.Served, changed = true, true
	}
	for _, column := range want.AdditionalPrinterColumns {
		known := slices.ContainsFunc(have.AdditionalPrinterColumns, func(h apiextensionsv1.CustomResourceColumnDefinition) bool {
			return h.Name == column.Name
		})
		if !known {
			have.AdditionalPrinterColumns = append(have.AdditionalPrinterColumns, column)
			changed = true
		}
	}
	if want.Schema == nil || want.Schema.OpenAPIV3Schema == nil || have.Schema == nil || have.Schema.OpenAPIV3Schema == nil {
		return changed
	}
	return completeSchema(have.Schema.OpenAPIV3Schema, want.Schema.OpenAPIV3Schema) || changed
}

// completeSchema adds properties and enum values, at any depth. A schema that keeps unknown fields,
// or has no list of values, accepts everything already.
func completeSchema(have, want *apiextensionsv1.JSONSchemaProps) bool {
	changed := false
	for name, w := range want.Properties {
		h, ok := have.Properties[name]
		switch {
		case ok:
			if completeSchema(&h, &w) {
				have.Properties[name], changed = h, true
			}
		case have.Type == "object" && have.AdditionalProperties == nil:
			if have.Properties == nil {
				have.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
			}
			have.Properties[name], changed = *w.DeepCopy(), true
		}
	}
	if have.Items != nil && want.Items != nil && have.Items.Schema != nil && want.Items.Schema != nil {
		changed = completeSchema(have.Items.Schema, want.Items.Schema) || changed
	}
	if len(have.Enum) == 0 {
		return changed
	}
	for _, value := range want.Enum {
		known := slices.ContainsFunc(have.Enum, func(h apiextensionsv1.JSON) bool { return string(h.Raw) == string(value.Raw) })
		if !known {
			have.Enum, changed = append(have.Enum, value), true
		}
	}
	return changed
}
