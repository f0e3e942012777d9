package apply

import (
	"reflect"
	"slices"
)

// listKeys are the fields by which elements of a list are told apart, the first that fits.
var listKeys = []string{"name", "mountPath", "containerPort", "port"}

// carryOver returns want with what the resets took off the live object: normalized is live after the
// resets, and want went through the same ones. What is equal in normalized and want is as in live, so that
// the difference between live and the result is what differs for the user.
func carryOver(live, normalized, want any) any {
	if reflect.DeepEqual(normalized, want) {
		return live
	}
	switch want := want.(type) {
	case map[string]any:
		l, isMap := live.(map[string]any)
		n, isNormalized := normalized.(map[string]any)
		if isMap && isNormalized {
			return carryMembers(l, n, want)
		}
	case []any:
		l, isList := live.([]any)
		n, isNormalized := normalized.([]any)
		if isList && isNormalized {
			return carryElements(l, n, want)
		}
	}
	return want
}

func carryMembers(live, normalized, want object) object {
	out := make(object, len(live))
	for key, value := range live {
		if _, kept := normalized[key]; !kept {
			out[key] = value
		}
	}
	for key, value := range want {
		was, known := normalized[key]
		now, there := live[key]
		switch {
		case known && there:
			out[key] = carryOver(now, was, value)
		case !known || !reflect.DeepEqual(was, value):
			out[key] = value
		}
	}
	return out
}

// carryElements does it for a list whose elements have a key; any other list is wanted as a whole. Elements
// that the resets took off keep their places.
func carryElements(live, normalized, want []any) []any {
	key := keyOfLists(live, normalized, want)
	if key == "" {
		return want
	}
	was, now, wanted := elementsByKey(normalized, key), elementsByKey(live, key), elementsByKey(want, key)
	out := make([]any, 0, len(live))
	for _, element := range want {
		id := elementKey(element, key)
		if n, ok := was[id]; ok && now[id] != nil {
			element = carryOver(now[id], n, element)
		}
		out = append(out, element)
	}
	for i, element := range live {
		id := elementKey(element, key)
		if was[id] == nil && wanted[id] == nil {
			out = slices.Insert(out, min(i, len(out)), element)
		}
	}
	return out
}

// keyOfLists returns a field that distinguishes the elements of each list, "" when there is none.
func keyOfLists(lists ...[]any) string {
	for _, key := range listKeys {
		if !slices.ContainsFunc(lists, func(list []any) bool {
			byKey := elementsByKey(list, key)
			return len(byKey) < len(list) || byKey[nil] != nil
		}) {
			return key
		}
	}
	return ""
}

func elementsByKey(list []any, key string) map[any]any {
	out := make(map[any]any, len(list))
	for _, element := range list {
		out[elementKey(element, key)] = element
	}
	return out
}

// elementKey returns the value of a field of a list's element, nil where it has none that can be compared.
func elementKey(element any, key string) any {
	member, ok := element.(object)
	if !ok {
		return nil
	}
	switch value := member[key].(type) {
	case string, int64, float64:
		return value
	}
	return nil
}
