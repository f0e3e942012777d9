package apply

// object is a decoded JSON object.
type object = map[string]any

// childObject returns the object under key, nil when there is none of that type. Reading from a nil map
// is fine.
func childObject(o object, path ...string) object {
	for _, key := range path {
		next, ok := o[key].(object)
		if !ok {
			return nil
		}
		o = next
	}
	return o
}

// textOf returns the string under key, "" when there is none.
func textOf(o object, key string) string {
	s, ok := o[key].(string)
	if !ok {
		return ""
	}
	return s
}

// listAt returns the list under key, nil when there is none.
func listAt(o object, key string) []any {
	list, ok := o[key].([]any)
	if !ok {
		return nil
	}
	return list
}

// objectList returns the elements of the list under key that are objects.
func objectList(o object, key string) []object {
	list := listAt(o, key)
	if list == nil {
		return nil
	}
	out := make([]object, 0, len(list))
	for _, v := range list {
		if e, ok := v.(object); ok {
			out = append(out, e)
		}
	}
	return out
}

// filterList keeps the elements of the list under key that keep accepts; an emptied list is removed.
func filterList(o object, key string, keep func(object) bool) {
	list, ok := o[key].([]any)
	if !ok {
		return
	}
	kept := list[:0:0]
	for _, v := range list {
		if e, isObject := v.(object); !isObject || keep(e) {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		delete(o, key)
		return
	}
	o[key] = kept
}

// dropKeys removes keys; a nil map is fine.
func dropKeys(o object, keys ...string) {
	for _, key := range keys {
		delete(o, key)
	}
}
