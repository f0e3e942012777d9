package builtin

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// ErrPanic means that an action has a defect. It cost the object, not the job.
var ErrPanic = errors.New("panic")

// Resources of more than one action.
var (
	claims          = schema.GroupResource{Resource: "persistentvolumeclaims"}
	pods            = schema.GroupResource{Resource: "pods"}
	volumes         = schema.GroupResource{Resource: "persistentvolumes"}
	priorityClasses = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}
)

// named is an action's name and the resources it always applies to.
type named struct {
	name      string
	resources []string
}

// Actions that a backup has twice, as an item action and as one that forms blocks.
var (
	podAction     = named{"velero.io/pod", []string{"pods"}}
	accountAction = named{"velero.io/service-account", []string{"serviceaccounts"}}
	claimAction   = named{"velero.io/pv", []string{"persistentvolumeclaims"}}
)

func (n named) Name() string { return n.name }

// DryRunSafe implements action.DryRunSafe: built-in actions read at most.
func (n named) DryRunSafe() {}

func (n named) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: n.resources}, nil
}

// guardPanic, deferred by every method, makes a panic an error and has errors name action and method.
func (n named) guardPanic(method string, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", ErrPanic, r)
	}
	if *err != nil {
		*err = fmt.Errorf("action %s: %s: %w", n.name, method, *err)
	}
}

const (
	execute = "Execute"
	related = "GetRelatedItems"
)

// uniqueElements returns the elements without repetitions, in their order.
func uniqueElements[T comparable](list []T) []T {
	if len(list) < 2 {
		return list
	}
	seen := make(map[T]struct{}, len(list))
	kept := list[:0]
	for _, v := range list {
		if _, again := seen[v]; !again {
			seen[v] = struct{}{}
			kept = append(kept, v)
		}
	}
	return kept
}
