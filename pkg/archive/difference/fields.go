package difference

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const (
	// MaxFields bounds the differences listed of one object.
	MaxFields = 100
	// MaxValue bounds the bytes of a value, and of a path.
	MaxValue = 1 << 10
	// maxDepth bounds how deep inside an object differences are looked for.
	maxDepth = 100
	// lastApplied is kubectl apply's copy of the whole object: it repeats the other differences.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// pathStep is a field of an object, or an element of a list.
type pathStep struct {
	name    string
	element bool
}

// fieldDifferences collects in which fields two objects differ.
type fieldDifferences struct {
	list []*manifestv1.FieldDifference
	more bool
	// isHidden reports that the values of a field are not shown.
	isHidden func(path []pathStep) bool
}

// compareBodies compares two bodies of an object in what a restore brings back.
func (d *fieldDifferences) compareBodies(from, to []byte, item *manifest.Item) error {
	var objects [2]map[string]any
	for i, body := range [][]byte{from, to} {
		object, err := jsonlimit.UnmarshalObject(body)
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		manifest.DropIgnored(object, item.Group, item.Kind)
		fillMetadata(object)
		objects[i] = object
	}
	d.compareObjects(nil, objects[0], objects[1], false)
	return nil
}

// fillMetadata adds maps that an object does not have, so that annotations and labels are compared and
// hidden one by one.
func fillMetadata(object map[string]any) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"annotations", "labels"} {
			if meta[field] == nil {
				meta[field] = map[string]any{}
			}
		}
	}
}

// missing is a value that is not there; null is one that is.
type missing struct{}

func valueAt(object map[string]any, key string) any {
	if value, ok := object[key]; ok {
		return value
	}
	return missing{}
}

// compareObjects compares the fields of two objects, or the elements of two lists by their names.
func (d *fieldDifferences) compareObjects(path []pathStep, from, to map[string]any, elements bool) {
	keys := maps.Clone(from)
	maps.Copy(keys, to)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.compareValues(append(path, pathStep{key, elements}), valueAt(from, key), valueAt(to, key))
	}
}

// compareValues lists where two values differ, as deep inside as both have the same structure.
func (d *fieldDifferences) compareValues(path []pathStep, from, to any) {
	fromObject, isObject := from.(map[string]any)
	toObject, both := to.(map[string]any)
	isObject = isObject && both
	fromList, isList := from.([]any)
	toList, both := to.([]any)
	isList = isList && both
	switch {
	case d.more:
	case isObject && len(path) < maxDepth:
		d.compareObjects(path, fromObject, toObject, false)
	case isList && len(path) < maxDepth:
		d.compareLists(path, fromList, toList)
	case !reflect.DeepEqual(from, to):
		d.addField(path, from, to)
	}
}

// compareLists compares elements by their names, or else by their places.
func (d *fieldDifferences) compareLists(path []pathStep, from, to []any) {
	fromNames, fromNamed := nameElements(from)
	toNames, toNamed := nameElements(to)
	if fromNamed == nil || toNamed == nil {
		for i := range max(len(from), len(to)) {
			d.compareValues(append(path, pathStep{strconv.Itoa(i), true}), elementAt(from, i), elementAt(to, i))
		}
		return
	}
	before := len(d.list)
	d.compareObjects(path, fromNamed, toNamed, true)
	if len(d.list) == before && !d.more && !slices.Equal(fromNames, toNames) {
		d.addField(path, from, to)
	}
}

func elementAt(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return missing{}
}

// nameElements returns the elements of a list by their field "name" or "key", and these in their order; nil
// unless that names each of them.
func nameElements(list []any) (names []string, named map[string]any) {
	for _, field := range []string{"name", "key"} {
		names, named = make([]string, 0, len(list)), make(map[string]any, len(list))
		for _, element := range list {
			object, ok := element.(map[string]any)
			name, isText := object[field].(string)
			if !ok || !isText {
				break
			}
			names, named[name] = append(names, name), element
		}
		if len(named) == len(list) {
			return names, named
		}
	}
	return nil, nil
}

func (d *fieldDifferences) addField(path []pathStep, from, to any) {
	if len(d.list) >= MaxFields {
		d.more = true
		return
	}
	field := &manifestv1.FieldDifference{Path: joinPath(path)}
	if field.Masked = d.isHidden(path); !field.Masked {
		field.From, field.To = shownValue(from), shownValue(to)
	}
	d.list = append(d.list, field)
}

// joinPath writes a path: names of fields with dots between them; elements, and names with dots or
// slashes, are in brackets.
func joinPath(path []pathStep) string {
	var text strings.Builder
	for i, step := range path {
		switch {
		case i == 0:
			text.WriteString(step.name)
		case step.element || strings.ContainsAny(step.name, "./[] "):
			text.WriteString("[" + step.name + "]")
		default:
			text.WriteString("." + step.name)
		}
	}
	return cutText(text.String())
}

// cutText cuts a text that is too long, and says so.
func cutText(text string) string {
	if len(text) <= MaxValue {
		return text
	}
	cut := MaxValue
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:cut], len(text))
}

// shownValue returns a value as JSON, nil for a missing one. A long value is cut.
func shownValue(value any) *string {
	if value == (missing{}) {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil // decoded JSON can be encoded
	}
	shown := cutText(string(text))
	return &shown
}

// hiddenFields returns which fields of an object are not shown: those of a Secret that may hold
// secret values, and the copy that kubectl apply makes of any object.
func hiddenFields(pair manifest.Pair) func(path []pathStep) bool {
	secret := pair.A.IsSecret() || pair.B.IsSecret()
	return func(path []pathStep) bool {
		isAnnotation := len(path) == 3 && path[0].name == "metadata" && path[1].name == "annotations"
		switch {
		case isAnnotation && path[2].name == lastApplied:
			return true
		case !secret || path[0].name == "type" || path[0].name == "immutable":
			return false
		case isAnnotation:
			return !isPublished(pair.A, path[2].name) || !isPublished(pair.B, path[2].name)
		}
		return path[0].name != "metadata" || len(path) == 1 || path[1].name == "annotations"
	}
}

// isPublished reports that the manifest shows an annotation, or that the object does not have it.
func isPublished(item *manifest.Item, annotation string) bool {
	_, shown := item.Annotations[annotation]
	_, hidden := item.HiddenAnnotations[annotation]
	return shown || !hidden
}
