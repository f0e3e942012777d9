package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// ErrObject means that something is not the JSON of one Kubernetes object.
var ErrObject = errors.New("not a Kubernetes object")

// Object is one Kubernetes object on its way through a chain of actions: as JSON, decoded, or both.
// The missing form is made when it is first asked for and kept, so that plugins, which take JSON,
// and built-in actions, which take maps, convert only where one follows the other. An Object never
// changes: an action that changes the object returns a new one. It is not safe for concurrent use.
type Object struct {
	raw     []byte
	content map[string]any
}

// FromJSON returns the object with this JSON, which is not checked before its content is asked for.
// raw must not be changed afterwards.
func FromJSON(raw []byte) *Object { return &Object{raw: raw} }

// FromContent returns the object with this content, in the types that package encoding/json of
// apimachinery decodes to (int64, float64, string, bool, nil, []any, map[string]any). content must
// not be changed afterwards.
func FromContent(content map[string]any) *Object { return &Object{content: content} }

// JSON returns the object as JSON. The caller must not change it.
func (o *Object) JSON() ([]byte, error) {
	if o.raw == nil {
		raw, err := json.Marshal(o.content)
		if err != nil {
			return nil, fmt.Errorf("encode object: %w", err)
		}
		o.raw = raw
	}
	return o.raw, nil
}

// Content returns the object decoded. The caller must not change it, see Copy. An error wraps
// ErrObject; one of so many values that decoding it would take more than jsonlimit.Object is one,
// too.
func (o *Object) Content() (map[string]any, error) {
	if o.content == nil {
		content, err := jsonlimit.UnmarshalObject(o.raw)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrObject, err)
		}
		if content == nil {
			return nil, fmt.Errorf("%w: null", ErrObject)
		}
		o.content = content
	}
	return o.content, nil
}

// Copy returns a decoded copy that the caller may change and give to FromContent. An error wraps
// ErrObject.
func (o *Object) Copy() (*unstructured.Unstructured, error) {
	content, err := o.Content()
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}, nil
}

// Identity is what makes an object that object.
type Identity struct {
	// Kind is empty in parts that the object does not state.
	Kind schema.GroupVersionKind
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	Name      string
}

// String returns "kind.group namespace/name".
func (i Identity) String() string {
	if i.Namespace == "" {
		return i.Kind.GroupKind().String() + " " + i.Name
	}
	return i.Kind.GroupKind().String() + " " + i.Namespace + "/" + i.Name
}

// Identity reads kind and name without decoding the rest, and as Content would: names of fields are
// matched exactly. Only where a field comes twice may the two differ. Fields of another type than
// Kubernetes gives them, and text that is not one JSON object, are errors that wrap ErrObject.
func (o *Object) Identity() (Identity, error) {
	if o.content != nil {
		return identityOf(o.content)
	}
	var head *struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := utiljson.Unmarshal(o.raw, &head); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrObject, err)
	}
	if head == nil {
		return Identity{}, fmt.Errorf("%w: null", ErrObject)
	}
	return Identity{Kind: schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}, nil
}

func identityOf(content map[string]any) (id Identity, err error) {
	var texts [4]string
	for i, path := range [...][]string{{"apiVersion"}, {"kind"}, {"metadata", "namespace"}, {"metadata", "name"}} {
		if texts[i], err = textAt(content, path...); err != nil {
			return Identity{}, err
		}
	}
	return Identity{Kind: schema.FromAPIVersionAndKind(texts[0], texts[1]), Namespace: texts[2], Name: texts[3]}, nil
}

// textAt returns the text of a field, empty where it is null or not there, as decoding into a
// struct would.
func textAt(content map[string]any, path ...string) (string, error) {
	var value any = content
	for i, key := range path {
		if value == nil {
			return "", nil
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return "", fmt.Errorf("%w: %s is no object", ErrObject, strings.Join(path[:i], "."))
		}
		value = fields[key]
	}
	if value == nil {
		return "", nil
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%w: %s is no text", ErrObject, strings.Join(path, "."))
	}
	return text, nil
}
