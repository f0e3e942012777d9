package pluginhost

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// selectorOf translates an answer of AppliesTo; none at all means everything.
func selectorOf(s *velero.ResourceSelector) action.Selector {
	return action.Selector{
		IncludedNamespaces: s.GetIncludedNamespaces(),
		ExcludedNamespaces: s.GetExcludedNamespaces(),
		IncludedResources:  s.GetIncludedResources(),
		ExcludedResources:  s.GetExcludedResources(),
		Labels:             s.GetSelector(),
	}
}

// resourceIdentifier names an object in either protocol.
type resourceIdentifier interface {
	GetGroup() string
	GetResource() string
	GetNamespace() string
	GetName() string
}

// itemsOf translates and checks the items of an answer's field.
func itemsOf[I resourceIdentifier](field string, ids []I) ([]action.Item, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	items := make([]action.Item, len(ids))
	for i, id := range ids {
		items[i] = action.Item{
			GroupResource: schema.GroupResource{Group: id.GetGroup(), Resource: id.GetResource()},
			Namespace:     id.GetNamespace(),
			Name:          id.GetName(),
		}
		if items[i].Resource == "" || items[i].Name == "" {
			return nil, fmt.Errorf("%w: %s[%d] names no object: resource %q, name %q", ErrMalformed, field, i, clipText(items[i].Resource), clipText(items[i].Name))
		}
	}
	return items, nil
}

func identifiersOf(items []action.Item) []*velero.ResourceIdentifier {
	ids := make([]*velero.ResourceIdentifier, len(items))
	for i, item := range items {
		ids[i] = &velero.ResourceIdentifier{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name}
	}
	return ids
}

// decodeAnswer decodes an object and drops its text: with a duplicate field another decoder could
// read another object from that text.
func decodeAnswer(answer []byte) (*action.Object, action.Identity, error) {
	content, err := action.FromJSON(answer).Content()
	if err != nil {
		return nil, action.Identity{}, err
	}
	object := action.FromContent(content)
	id, err := object.Identity()
	return object, id, err
}

// answerOf checks the object a plugin returned for the one sent. The very text sent is the very
// object. With renamed, it may be another object with a name: some restore actions rename and convert on
// purpose.
func answerOf(sent *action.Object, answer []byte, renamed bool) (*action.Object, error) {
	if len(answer) == 0 {
		return nil, fmt.Errorf("%w: item is empty", ErrMalformed)
	}
	text, err := sent.JSON()
	if err != nil {
		return nil, err
	}
	if bytes.Equal(text, answer) {
		return sent, nil
	}
	object, is, err := decodeAnswer(answer)
	if err != nil {
		return nil, fmt.Errorf("%w: item: %s", ErrMalformed, clipText(err.Error()))
	}
	was, err := sent.Identity()
	if err != nil {
		return nil, err
	}
	same := is.Kind.GroupKind() == was.Kind.GroupKind() && is.Namespace == was.Namespace && is.Name == was.Name
	if !same && (!renamed || is.Name == "") {
		return nil, fmt.Errorf("%w: item is another object: %s", ErrMalformed, clipText(is.String()))
	}
	return object, nil
}

// answerIfAny is answerOf for answers that leave out an object that stays as it is.
func answerIfAny(sent *action.Object, answer []byte, renamed bool) (*action.Object, error) {
	if len(answer) == 0 {
		return sent, nil
	}
	return answerOf(sent, answer, renamed)
}
