package object

// MapAt returns the object under key, nil when there is none.
func MapAt(o map[string]any, key string) map[string]any {
	child, ok := o[key].(map[string]any)
	if !ok {
		return nil
	}
	return child
}

// ListAt returns the list under key, nil when there is none.
func ListAt(o map[string]any, key string) []any {
	l, ok := o[key].([]any)
	if !ok {
		return nil
	}
	return l
}

// TextAt returns the string under key, "" when there is none.
func TextAt(o map[string]any, key string) string {
	s, ok := o[key].(string)
	if !ok {
		return ""
	}
	return s
}

// LabelsAt are the labels of a decoded object, for selectors.
type LabelsAt map[string]any

// LabelsOf returns the labels of an object.
func LabelsOf(o map[string]any) LabelsAt { return MapAt(MapAt(o, "metadata"), "labels") }

// Has implements labels.Labels.
func (l LabelsAt) Has(key string) bool { _, ok := l[key]; return ok }

// Get implements labels.Labels.
func (l LabelsAt) Get(key string) string { return TextAt(l, key) }

// Lookup implements labels.Labels.
func (l LabelsAt) Lookup(key string) (string, bool) { _, ok := l[key]; return TextAt(l, key), ok }
