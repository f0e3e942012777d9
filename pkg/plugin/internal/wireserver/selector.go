package wireserver

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// checkedSelector is an action's checked answer to AppliesTo.
type checkedSelector struct {
	plugin.Selector
	expression *plugin.Expression
}

// readSelector calls AppliesTo of an action, checks the answer, and keeps it for matches.
func (h *pluginHandle) readSelector(ctx context.Context, action plugin.Action) (*checkedSelector, error) {
	answer, err := action.AppliesTo(ctx)
	if err != nil {
		return nil, err
	}
	s := &checkedSelector{Selector: answer}
	if err := h.checkSelector(s); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "AppliesTo of %s: %v", h.Name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.selected = s
	return s, nil
}

// matchesItem evaluates the action's expression, which a Velero server does not know. What else is
// selected both know.
func (h *pluginHandle) matchesItem(ctx context.Context, action plugin.Action, item *unstructured.Unstructured) (bool, error) {
	h.mu.Lock()
	s := h.selected
	h.mu.Unlock()
	if s == nil { // this process was started between the question and the objects
		var err error
		if s, err = h.readSelector(ctx, action); err != nil {
			return false, err
		}
	}
	if s.expression == nil {
		return true, nil
	}
	matched, err := s.expression.Matches(ctx, item.Object)
	if err != nil {
		return false, status.Errorf(codes.InvalidArgument, "item: %v", err)
	}
	return matched, nil
}

// checkSelector narrows the selector to what the action may touch, and refuses what cannot be meant.
func (h *pluginHandle) checkSelector(s *checkedSelector) error {
	if _, err := labels.Parse(s.LabelSelector); err != nil {
		return status.Errorf(codes.InvalidArgument, "LabelSelector: %v", err)
	}
	if s.Expression != "" {
		compiled, err := plugin.CompileExpression(s.Expression)
		if err != nil {
			return err
		}
		s.expression = compiled
	}
	if h.Touches[0] == "*" {
		return nil
	}
	if len(s.IncludedResources) == 0 || slices.Equal(s.IncludedResources, []string{"*"}) {
		s.IncludedResources = h.Touches
	}
	for _, resource := range s.IncludedResources {
		if !slices.ContainsFunc(h.Touches, func(may string) bool { return strings.EqualFold(may, resource) }) {
			return status.Errorf(codes.InvalidArgument, "IncludedResources: %q is not among those it was registered to touch: %s",
				resource, strings.Join(h.Touches, ", "))
		}
	}
	return nil
}

// veleroSelector returns what Velero's protocol can say of it.
func (s *checkedSelector) veleroSelector() *velero.ResourceSelector {
	return &velero.ResourceSelector{
		IncludedNamespaces: s.IncludedNamespaces, ExcludedNamespaces: s.ExcludedNamespaces,
		IncludedResources: s.IncludedResources, ExcludedResources: s.ExcludedResources, Selector: s.LabelSelector,
	}
}

// appliesTo answers AppliesTo of Velero's protocol for any kind of action.
func appliesTo(ctx context.Context, s *Server, kind plugin.Kind, name string) (*velero.ResourceSelector, error) {
	action, h, err := findPlugin[plugin.Action](s, kind, name)
	if err != nil {
		return nil, err
	}
	chosen, err := h.readSelector(ctx, action)
	if err != nil {
		return nil, err
	}
	return chosen.veleroSelector(), nil
}

// wireIdentifiers are the objects an action named, in Velero's protocol.
func wireIdentifiers(items []plugin.ResourceIdentifier) []*velero.ResourceIdentifier {
	out := make([]*velero.ResourceIdentifier, 0, len(items))
	for _, i := range items {
		out = append(out, &velero.ResourceIdentifier{Group: i.Group, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name})
	}
	return out
}
