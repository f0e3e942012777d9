package itemaction

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrBusy means that as many deletions use a plugin as may. Nothing failed: this one is to come again.
var ErrBusy = errors.New("works for other deletions")

// PluginLimit bounds how many deletions use one plugin at once, so that a plugin that hangs does not hold
// up all of them. It is safe for concurrent use; a nil *PluginLimit has no bound.
type PluginLimit struct {
	// Deletions is how many.
	Deletions int

	mu    sync.Mutex
	users map[string]int
}

// PluginUse is what one attempt at a deletion uses. It keeps its plugins until Close: an attempt that lost
// one on the way would have to show all objects again. It is not safe for concurrent use.
type PluginUse struct {
	limit   *PluginLimit
	plugins []string
}

// OpenUse begins an attempt, which uses no plugin yet.
func (l *PluginLimit) OpenUse() *PluginUse { return &PluginUse{limit: l} }

// AddPlugin notes that the attempt uses the plugin of that name, once for all its calls. The error wraps
// ErrBusy and begins with the name.
func (u *PluginUse) AddPlugin(name string) error {
	l := u.limit
	if l == nil || slices.Contains(u.plugins, name) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[name] >= l.Deletions {
		return fmt.Errorf("%s: %w", name, ErrBusy)
	}
	if l.users == nil {
		l.users = map[string]int{}
	}
	l.users[name]++
	u.plugins = append(u.plugins, name)
	return nil
}

// Close ends the use of all plugins.
func (u *PluginUse) Close() {
	if u.limit == nil {
		return
	}
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	for _, name := range u.plugins {
		u.limit.users[name]--
	}
}
