package actionset

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// Object is an object on its way through the actions.
type Object struct {
	// Kind is that of the object.
	Kind schema.GroupVersionKind
	Meta *objmeta.Meta
	// Raw is the object as JSON, with apiVersion and kind.
	Raw []byte
	// Spaced reports that Raw is not compact.
	Spaced bool
	// Envelope of Raw.
	Envelope jsonlist.Envelope

	object *action.Object
}

// ParseObject returns the object of that kind with this JSON, which must have apiVersion and kind.
func ParseObject(kind schema.GroupVersionKind, raw []byte) (Object, error) {
	item, err := jsonlist.ParseObject(raw)
	if err != nil {
		return Object{}, err
	}
	if !item.HasTypeMeta {
		return Object{}, errors.New("apiVersion or kind is missing")
	}
	o := Object{Kind: kind, Meta: &objmeta.Meta{}, Raw: item.Raw, Spaced: item.Spaced, Envelope: item.Envelope}
	return o, objmeta.Decode(item.Metadata, o.Meta)
}

// decodedObject returns the object as actions take it, the same for all that get it unchanged.
func (o *Object) decodedObject() *action.Object {
	if o.object == nil {
		o.object = action.FromJSON(o.Raw)
	}
	return o.object
}

// takeAnswer makes what an action returned the object.
func (r *Result) takeAnswer(answer *action.Object) error {
	was := &r.Object
	id, err := answer.Identity()
	if err != nil {
		return err
	}
	if id.Kind.GroupKind() != was.Kind.GroupKind() || id.Kind.Version == "" || id.Namespace != was.Meta.Namespace || id.Name != was.Meta.Name {
		return fmt.Errorf("another object came back: %s", clipText(id.String()))
	}
	raw, err := answer.JSON()
	if err != nil {
		return err
	}
	now, err := ParseObject(id.Kind, raw)
	if err != nil {
		return fmt.Errorf("what came back cannot be stored: %w", err)
	}
	now.object = answer
	r.Object, r.Changed = now, true
	return nil
}

// mustInclude reports whether an annotation requests that additional items are included regardless
// of the filters. It is removed before the object is stored.
func (r *Result) mustInclude() (bool, error) {
	value, says := r.Object.Meta.Annotations.Lookup(velerov1.AnnotationMustIncludeAdditional)
	if !says {
		return false, nil
	}
	u, err := r.Object.decodedObject().Copy()
	if err != nil {
		return false, err
	}
	annotations := u.GetAnnotations()
	delete(annotations, velerov1.AnnotationMustIncludeAdditional)
	if len(annotations) == 0 {
		annotations = nil // a plugin made the map
	}
	u.SetAnnotations(annotations)
	return value == "true", r.takeAnswer(action.FromContent(u.Object))
}
