// Package decoded reads parts of decoded JSON objects.
package decoded

// Object returns the object under key, nil when there is none.
func Object(o map[string]any, key string) map[string]any {
	child, ok := o[key].(map[string]any)
	if !ok {
		return nil
	}
	return child
}

// List returns the list under key, nil when there is none.
func List(o map[string]any, key string) []any {
	l, ok := o[key].([]any)
	if !ok {
		return nil
	}
	return l
}

// Text returns the string under key, "" when there is none.
func Text(o map[string]any, key string) string {
	s, ok := o[key].(string)
	if !ok {
		return ""
	}
	return s
}

// Labels are the labels of a decoded object, for selectors.
type Labels map[string]any

// LabelsOf returns the labels of an object.
func LabelsOf(o map[string]any) Labels { return Object(Object(o, "metadata"), "labels") }

// Has implements labels.Labels.
func (l Labels) Has(key string) bool { _, ok := l[key]; return ok }

// Get implements labels.Labels.
func (l Labels) Get(key string) string { return Text(l, key) }

// Lookup implements labels.Labels.
func (l Labels) Lookup(key string) (string, bool) { _, ok := l[key]; return Text(l, key), ok }
