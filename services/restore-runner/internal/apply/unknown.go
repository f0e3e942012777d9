package apply

import (
	"regexp"
	"strconv"
	"strings"
)

// unknownField finds the fields that strict validation of kube-apiserver 1.36 refuses.
var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// dropUnknown removes the fields from the object that strict validation does not know, and notes them. False
// where there was none.
func (r *Request) dropUnknown(err error) bool {
	if !strings.Contains(err.Error(), "strict decoding error") {
		return false
	}
	var dropped []string
	for _, m := range unknownField.FindAllStringSubmatch(err.Error(), -1) {
		if removeField(r.Object, strings.Split(m[1], ".")) {
			dropped = append(dropped, m[1])
		}
	}
	if len(dropped) == 0 {
		return false
	}
	r.noteChange("left out, since " + r.GVR.GroupVersion().String() + " does not have it: " + strings.Join(dropped, ", "))
	return true
}

// removeField removes a field by its path, whose elements may have indexes. False where it is not there.
func removeField(in any, path []string) bool {
	name, index, indexed := strings.Cut(path[0], "[")
	parent, ok := in.(object)
	if !ok {
		return false
	}
	value, ok := parent[name]
	if !ok {
		return false
	}
	if len(path) == 1 && !indexed {
		delete(parent, name)
		return true
	}
	if indexed {
		list, isList := value.([]any)
		at, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if !isList || err != nil || at >= len(list) || at < 0 || len(path) == 1 {
			return false
		}
		value = list[at]
	}
	return removeField(value, path[1:])
}
