package reference

import (
	"strings"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// addRevealed adds rules for the fields of a kind that, by the schema of its definition, hold references:
//
//   - a text "secretName", "configMapName", "serviceAccountName" or the name of another kind in namedTexts,
//     alone or at the end of the field's name
//   - an object with "name" in a field that ends with "secret", "configMap" or "serviceAccount", "Ref",
//     "KeyRef" or "Refs" behind it or not
//   - an object with "name", "kind" and "apiVersion" or "apiGroup", or with "name" and "kind" in a field that
//     ends with "Ref" or "Refs"
//   - the spec of a Pod
//
// Fields that have a rule keep it. What a schema does not describe is no reference.
func addRevealed(tree *fieldTree, definition []byte, version string) {
	for e := rawjson.ArrayElements(rawjson.Lookup(definition, "spec", "versions")); e.Next(); {
		if rawjson.String(rawjson.Lookup(e.Value, "name")) != version {
			continue
		}
		w := schemaWalk{tree: tree, left: maxKindRules}
		for f := rawjson.ObjectFields(rawjson.Lookup(e.Value, "schema", "openAPIV3Schema", "properties")); f.Next(); {
			switch string(f.Key) {
			case "apiVersion", "kind", "metadata", "status":
			default:
				w.visitProperty(string(f.Key), f.Value)
			}
		}
	}
}

// schemaWalk is the walk through a schema.
type schemaWalk struct {
	tree  *fieldTree
	steps []string // to the property
	left  int      // of the rules that a kind may have
}

// propertySchema is what counts of the schema of one property.
type propertySchema struct {
	kind              string // "object"
	properties, items []byte
}

func readProperty(value []byte) (p propertySchema) {
	for f := rawjson.ObjectFields(value); f.Next(); {
		switch string(f.Key) {
		case "type":
			p.kind = rawjson.String(f.Value)
		case "properties":
			p.properties = f.Value
		case "items":
			p.items = f.Value
		}
	}
	return p
}

// visitProperty adds rules for a property and those below it.
func (w *schemaWalk) visitProperty(name string, value []byte) {
	if len(w.steps) >= maxSteps || w.left == 0 {
		return
	}
	w.steps = append(w.steps, name)
	p, depth := readProperty(value), len(w.steps)
	for p.kind == "array" && len(w.steps) < maxSteps {
		w.steps = append(w.steps, listStep)
		p = readProperty(p.items)
	}
	if t := revealedTarget(name, &p); t != nil {
		if w.tree.addTarget(w.steps, t) {
			w.left--
		}
	} else {
		for f := rawjson.ObjectFields(p.properties); len(p.properties) > 0 && f.Next(); {
			w.visitProperty(string(f.Key), f.Value)
		}
	}
	w.steps = w.steps[:depth-1]
}

// namedTexts are the names of texts, or ends of these, that name an object.
var namedTexts = []struct {
	end    string
	target namedTarget
}{
	{"secretName", namedTarget{kind: secrets, relation: Reads}},
	{"configMapName", namedTarget{kind: configMaps, relation: Reads}},
	{"serviceAccountName", namedTarget{kind: serviceAccounts, relation: RunsAs}},
	{"persistentVolumeClaimName", namedTarget{kind: claims, relation: Claims}},
	{"priorityClassName", namedTarget{kind: priorityClasses, relation: RankedBy}},
	{"storageClassName", namedTarget{kind: storageClasses, relation: ProvisionedBy}},
}

// revealedTarget returns what a property names, nil where it names nothing.
func revealedTarget(name string, p *propertySchema) *namedTarget {
	switch p.kind {
	case "string":
		return targetOfText(name)
	case "object":
		return targetOfObject(name, readFields(p.properties))
	}
	return nil
}

// targetOfText returns what a text names by the name of its field.
func targetOfText(field string) *namedTarget {
	for i := range namedTexts {
		t := &namedTexts[i]
		if head, ok := strings.CutSuffix(field, t.end[1:]); ok && strings.EqualFold(head[max(0, len(head)-1):], t.end[:1]) {
			return &t.target
		}
	}
	return nil
}

// schemaFields are the properties of an object that are texts, and whether it is the spec of a Pod.
type schemaFields struct{ name, kind, version, pods bool }

func readFields(properties []byte) (has schemaFields) {
	if len(properties) == 0 {
		return has
	}
	for f := rawjson.ObjectFields(properties); f.Next(); {
		text := func() bool { return rawjson.String(rawjson.Lookup(f.Value, "type")) == "string" }
		switch string(f.Key) {
		case "name":
			has.name = text()
		case "kind":
			has.kind = text()
		case "apiVersion", "apiGroup":
			has.version = has.version || text()
		case "containers":
			has.pods = rawjson.String(rawjson.Lookup(f.Value, "type")) == "array"
		}
	}
	return has
}

// targetOfObject returns what an object with these properties names.
func targetOfObject(field string, has schemaFields) *namedTarget {
	bare, refers := field, false
	for _, end := range []string{"Refs", "Ref", "refs", "ref"} {
		if bare, refers = strings.CutSuffix(field, end); refers {
			break
		}
	}
	switch {
	case has.pods:
		return &namedTarget{pods: true}
	case !has.name:
		return nil
	case has.kind && (has.version || refers):
		return &namedTarget{nearby: true, relation: Names}
	case has.kind:
		return nil
	}
	bare = strings.TrimSuffix(strings.TrimSuffix(bare, "Key"), "s")
	return targetOfText(bare + "Name")
}
