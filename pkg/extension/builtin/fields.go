package builtin

import (
	"errors"
	"fmt"
	"strings"
)

// ErrField means that a field of an object has another type than Kubernetes gives it.
var ErrField = errors.New("field of an unexpected type")

// object is a decoded JSON object.
type object = map[string]any

// fieldError names the field, never its value: that may be secret.
type fieldError struct {
	path, want string
	got        any
}

func (e *fieldError) Error() string {
	return fmt.Sprintf("%s: %s expected, not %s", e.path, e.want, describeType(e.got))
}

func (e *fieldError) Unwrap() error { return ErrField }

func describeType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case object:
		return "an object"
	case []any:
		return "a list"
	default:
		return "a number"
	}
}

// wrapFieldError puts the place of an element before the field that an error names.
func wrapFieldError(place string, err error) error {
	var e *fieldError
	if errors.As(err, &e) {
		return &fieldError{place + "." + e.path, e.want, e.got}
	}
	return fmt.Errorf("%s: %w", place, err)
}

// childObject returns the object at the path, nil when it or one on the way is missing or null.
func childObject(o object, path ...string) (object, error) {
	for i, key := range path {
		switch next := o[key].(type) {
		case nil:
			return nil, nil
		case object:
			o = next
		default:
			return nil, &fieldError{strings.Join(path[:i+1], "."), "an object", next}
		}
	}
	return o, nil
}

// textAt returns the string at the path and whether it is there; null is not.
func textAt(o object, path ...string) (string, bool, error) {
	last := len(path) - 1
	parent, err := childObject(o, path[:last]...)
	if err != nil {
		return "", false, err
	}
	switch v := parent[path[last]].(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	default:
		return "", false, &fieldError{strings.Join(path, "."), "a string", v}
	}
}

// eachObject calls visit for the objects in the list at the path, of which there are none when it is
// missing or null. Errors of visit get the element's place put before the field they name.
func eachObject(o object, visit func(object) error, path ...string) error {
	last := len(path) - 1
	parent, err := childObject(o, path[:last]...)
	if err != nil {
		return err
	}
	list, ok := parent[path[last]].([]any)
	if v := parent[path[last]]; !ok && v != nil {
		return &fieldError{strings.Join(path, "."), "a list", v}
	}
	for i, v := range list {
		element, ok := v.(object)
		place := func() string { return fmt.Sprintf("%s[%d]", strings.Join(path, "."), i) }
		if !ok {
			return &fieldError{place(), "an object", v}
		}
		if err := visit(element); err != nil {
			return wrapFieldError(place(), err)
		}
	}
	return nil
}
