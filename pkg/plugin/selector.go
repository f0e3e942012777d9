package plugin

import "context"

// Selector defines which objects an action is called for: those that all of its parts select. An
// empty part selects all, the zero Selector whatever the action may touch.
type Selector struct {
	// IncludedNamespaces, "*" for all. With any other value here or in ExcludedNamespaces, objects
	// without a namespace are left out.
	IncludedNamespaces []string
	// ExcludedNamespaces are left out.
	ExcludedNamespaces []string
	// IncludedResources, spelled as in Touches of the registration, which they must be part of.
	IncludedResources []string
	// ExcludedResources are left out.
	ExcludedResources []string
	// LabelSelector in its text form, for example "app in (a, b)".
	LabelSelector string
	// Expression in the Common Expression Language over the variable item, the whole object, for
	// example `has(item.spec.volumeName)`. Holdfast evaluates it without a call; elsewhere package
	// serve does.
	Expression string
}

// ResourceIdentifier names one object.
type ResourceIdentifier struct {
	// Group is the API group, empty for the core group.
	Group string
	// Resource is the plural resource name, for example "persistentvolumeclaims".
	Resource string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name of the object.
	Name string
}

// Everything can be embedded by actions that are called for every object they may touch.
type Everything struct{}

// AppliesTo returns the zero Selector.
func (Everything) AppliesTo(context.Context) (Selector, error) { return Selector{}, nil }

// Action is what all actions have in common. Embed Everything if it is called for all that it may
// touch.
type Action interface {
	// AppliesTo returns which objects the action is called for. It is asked at least once per job,
	// possibly in another process than the one that is called for the objects.
	AppliesTo(ctx context.Context) (Selector, error)
}
