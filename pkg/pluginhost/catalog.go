package pluginhost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Registration is one plugin that a binary serves.
type Registration struct {
	Kind Kind
	// Name is unique within Kind.
	Name string
	// Path is the binary.
	Path string
	// Touches are the only resources an action may be called for; empty means any. Only plugins of Holdfast's SDK state it.
	Touches []string
	// Restartable tells that an operation of an asynchronous action may be started again after its process died.
	Restartable bool

	described bool // the process serves Holdfast's own contract too
}

// BinaryError is something in the plugin directory that cannot be used. It is a reason to tell somebody, not to stop: the
// other plugins work.
type BinaryError struct {
	// Path is the binary.
	Path string
	Err  error
}

// Error names the binary.
func (f BinaryError) Error() string { return fmt.Sprintf("plugin binary %s: %v", f.Path, f.Err) }

// Unwrap returns Err.
func (f BinaryError) Unwrap() error { return f.Err }

// listing is what one binary registers.
type listing struct {
	path    string
	plugins []Registration
	// problems are what cannot be used of it, err is why nothing can.
	problems []error
	err      error
}

// arrange checks the listings and puts them into one order: binaries as they were found, in each the older versions
// before the newer, and names in alphanumeric order. Of two plugins with one kind and name the first counts.
func arrange(listings []listing) (plugins []Registration, failures []BinaryError) {
	type key struct {
		kind Kind
		name string
	}
	owner := map[key]string{}
	for _, l := range listings {
		if l.err != nil {
			failures = append(failures, BinaryError{l.path, l.err})
			continue
		}
		for _, problem := range l.problems {
			failures = append(failures, BinaryError{l.path, problem})
		}
		sorted := slices.SortedStableFunc(slices.Values(l.plugins), func(a, b Registration) int {
			return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), cmp.Compare(a.Name, b.Name))
		})
		for _, p := range sorted {
			if !known(p.Kind) {
				failures = append(failures, BinaryError{l.path, fmt.Errorf("%w: plugin %q has the unknown kind %q", ErrMalformed, clip(p.Name), clip(string(p.Kind)))})
				continue
			}
			if err := CheckName(p.Name); err != nil {
				failures = append(failures, BinaryError{l.path, fmt.Errorf("%w: %s: %s", ErrMalformed, p.Kind, clip(err.Error()))})
				continue
			}
			if first, taken := owner[key{p.Kind, p.Name}]; taken {
				failures = append(failures, BinaryError{l.path, fmt.Errorf("%w: %s %s is registered by %s already", ErrMalformed, p.Kind, p.Name, first)})
				continue
			}
			owner[key{p.Kind, p.Name}] = l.path
			plugins = append(plugins, p)
		}
	}
	return plugins, failures
}

// Plugins returns everything that can be used, binaries as they were found and in each the names of a kind in alphanumeric
// order; a plugin registered in two versions is in it twice, though only the newer one runs. The caller must not change it.
func (h *Host) Plugins() []Registration { return h.plugins }

// Failures returns what cannot be used. The caller must not change it.
func (h *Host) Failures() []BinaryError { return h.failures }

// Unknown returns the binaries of which it is not known what they register. One registration that is left out of a list is no
// such case.
func (h *Host) Unknown() []BinaryError {
	var unknown []BinaryError
	for _, f := range h.failures {
		listed := slices.ContainsFunc(h.plugins, func(p Registration) bool { return p.Path == f.Path })
		if !listed || !errors.Is(f.Err, ErrMalformed) {
			unknown = append(unknown, f)
		}
	}
	return unknown
}

// MayServe tells whether a binary registers a plugin of that kind, or one may that could not be asked.
func (h *Host) MayServe(kind Kind) bool {
	return slices.ContainsFunc(h.plugins, func(p Registration) bool { return p.Kind == kind }) || len(h.Unknown()) > 0
}

// effective returns the plugins of the kinds that run: of a name that is registered under a kind and its newer one, the
// newer.
func (h *Host) effective(kinds ...Kind) []Registration {
	var out []Registration
	for _, p := range h.plugins {
		if !slices.Contains(kinds, p.Kind) {
			continue
		}
		if newer, has := newer[p.Kind]; has {
			if _, replaced := h.find(newer, p.Name); replaced {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

func (h *Host) find(kind Kind, name string) (Registration, bool) {
	i := slices.IndexFunc(h.plugins, func(p Registration) bool { return p.Kind == kind && p.Name == name })
	if i < 0 {
		return Registration{}, false
	}
	return h.plugins[i], true
}
