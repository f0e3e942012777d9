package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// ErrConfig means that the ConfigMap of an action cannot be used.
var ErrConfig = errors.New("invalid action configuration")

// configured is an action that a ConfigMap configures. The configuration is read once per job;
// after a failure of the API server the next call retries.
type configured[T any] struct {
	named
	config *lazyValue[parsedConfigs[T]]
}

// parsedConfigs is the content of a ConfigMap, or why it is invalid: neither changes during a job.
type parsedConfigs[T any] struct {
	found bool
	value T
	err   error
}

func newConfigured[T any](n named, target Target, parse func(Config) (T, error)) configured[T] {
	return configured[T]{n, newLazy(func(ctx context.Context) (parsedConfigs[T], error) {
		found, err := target.Configs(ctx, plugin.ConfigSelector(plugin.KindRestoreItemAction, n.name))
		if err != nil {
			return parsedConfigs[T]{}, fmt.Errorf("read ConfigMap of %s: %w", n.name, err)
		}
		return parseConfigs(n.name, found, parse), nil
	})}
}

func parseConfigs[T any](name string, found []Config, parse func(Config) (T, error)) (s parsedConfigs[T]) {
	switch len(found) {
	case 0:
	case 1:
		s.found = true
		if s.value, s.err = parse(found[0]); s.err != nil {
			s.err = fmt.Errorf("%w: ConfigMap %s: %w", ErrConfig, found[0].Name, s.err)
		}
	default:
		names := make([]string, len(found))
		for i, c := range found {
			names[i] = c.Name
		}
		s.found = true
		s.err = fmt.Errorf("%w: several ConfigMaps are labelled for %s: %s", ErrConfig, name, strings.Join(names, ", "))
	}
	return s
}

// AppliesTo matches nothing without a ConfigMap. Where that is not known, and where the ConfigMap
// is no good, it matches: objects that are to be changed must not be created unchanged.
func (c configured[T]) AppliesTo(ctx context.Context) (action.Selector, error) {
	selector := action.Selector{IncludedResources: c.resources}
	if s, err := c.config.getValue(ctx); err == nil && !s.found {
		selector.ExcludedResources = c.resources
	}
	return selector, nil
}

// currentConfig returns the configuration and whether there is one.
func (c configured[T]) currentConfig(ctx context.Context) (value T, found bool, err error) {
	s, err := c.config.getValue(ctx)
	if err != nil {
		return value, false, err
	}
	return s.value, s.found, s.err
}
