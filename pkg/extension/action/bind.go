package action

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Bound is an action with its compiled selector.
type Bound[A Action] struct {
	Action A
	*Matcher
}

// Remarker is implemented by an action that has warnings for the owner of a job before it is called: about its
// configuration, for example.
type Remarker interface {
	Remarks(ctx context.Context) []string
}

// Bind calls AppliesTo of each action once. An action that does not answer, or not sensibly,
// is left out and has an error that names it: what it should have seen is unknown, so the job has
// to count that.
func Bind[A Action](ctx context.Context, actions []A, resolver selection.Resolver) ([]Bound[A], []error) {
	bound := make([]Bound[A], 0, len(actions))
	var errs []error
	for _, a := range actions {
		selector, err := a.AppliesTo(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		matcher, err := selector.Compile(resolver)
		if err != nil {
			errs = append(errs, fmt.Errorf("action %s: AppliesTo: %w", a.Name(), err))
			continue
		}
		bound = append(bound, Bound[A]{Action: a, Matcher: matcher})
	}
	return bound, errs
}
