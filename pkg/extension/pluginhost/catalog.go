package pluginhost

import (
	"cmp"
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
	// Touches are the only resources an action may be called for; empty means any. Only plugins of
	// Holdfast's SDK state it.
	Touches []string

	described bool // the process serves Holdfast's own contract too
}

// BinaryError is something in the plugin directory that cannot be used. It is reported, and does
// not stop the service: the other plugins work.
type BinaryError struct {
	// Path is the binary.
	Path string
	// Kind is what the plugin would be for; empty where that is not known.
	Kind Kind
	Err  error

	unread bool // nothing is known of the binary
}

// Error names the binary.
func (f BinaryError) Error() string { return fmt.Sprintf("plugin binary %s: %v", f.Path, f.Err) }

// Unwrap returns Err.
func (f BinaryError) Unwrap() error { return f.Err }

// binaryListing is what one binary registers.
type binaryListing struct {
	path    string
	plugins []Registration
	// problems are what cannot be used of it, err is why nothing can.
	problems []error
	err      error
}

// catalog is what is known of the binaries. Immutable.
type catalog struct {
	plugins  []Registration
	failures []BinaryError
}

// arrangeCatalog makes the listings the host's catalog: binaries as they were found, in each the older
// versions before the newer, and names in alphanumeric order. Of two plugins with one kind and name
// the first counts.
func (h *Host) arrangeCatalog() {
	c := &catalog{failures: slices.Clone(h.unread)}
	owners := map[pluginKey]string{}
	for _, l := range h.listings {
		if l.err != nil {
			c.failures = append(c.failures, BinaryError{Path: l.path, Err: l.err, unread: true})
			continue
		}
		for _, problem := range l.problems {
			c.failures = append(c.failures, BinaryError{Path: l.path, Err: problem})
		}
		sorted := slices.SortedStableFunc(slices.Values(l.plugins), func(a, b Registration) int {
			return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), cmp.Compare(a.Name, b.Name))
		})
		for _, p := range sorted {
			c.addRegistration(p, owners)
		}
	}
	h.known.Store(c)
}

// pluginKey is what a plugin is known by.
type pluginKey struct {
	kind Kind
	name string
}

// addRegistration adds a registration, or returns why it cannot.
func (c *catalog) addRegistration(p Registration, owners map[pluginKey]string) {
	fail := func(kind Kind, err error) {
		c.failures = append(c.failures, BinaryError{Path: p.Path, Kind: kind, Err: err})
	}
	if !isKnownKind(p.Kind) || isAsynchronous(p.Kind) && !p.described {
		fail("", fmt.Errorf("%w: plugin %q has the unknown kind %q", ErrMalformed, clipText(p.Name), clipText(string(p.Kind))))
		return
	}
	if err := CheckName(p.Name); err != nil {
		fail(p.Kind, fmt.Errorf("%w: %s: %s", ErrMalformed, p.Kind, clipText(err.Error())))
		return
	}
	if first, taken := owners[pluginKey{p.Kind, p.Name}]; taken {
		fail(p.Kind, fmt.Errorf("%w: %s %s is registered by %s already", ErrMalformed, p.Kind, p.Name, first))
		return
	}
	if first, taken := owners[pluginKey{twinKinds[p.Kind], p.Name}]; taken && first != p.Path {
		fail(p.Kind, fmt.Errorf("%w: %s %s is registered as %s by %s already", ErrMalformed, p.Kind, p.Name, twinKinds[p.Kind], first))
		return
	}
	owners[pluginKey{p.Kind, p.Name}] = p.Path
	c.plugins = append(c.plugins, p)
}

// Plugins returns everything that can be used, binaries as they were found and in each the names of
// a kind in alphanumeric order; a plugin registered in two versions is in it twice, though only the
// newer one runs. The caller must not change it.
func (h *Host) Plugins() []Registration { return h.known.Load().plugins }

// Failures returns what cannot be used. The caller must not change it.
func (h *Host) Failures() []BinaryError { return h.known.Load().failures }

// UnlistedBinaries returns the binaries of which it is not known what they register.
func (h *Host) UnlistedBinaries() []BinaryError {
	return slices.DeleteFunc(slices.Clone(h.Failures()), func(f BinaryError) bool { return !f.unread })
}

// MayServe reports whether a binary registers a plugin of that kind, or one may that could not be
// asked.
func (h *Host) MayServe(kind Kind) bool {
	return slices.ContainsFunc(h.Plugins(), func(p Registration) bool { return p.Kind == kind }) || len(h.UnlistedBinaries()) > 0
}

// missingBinaries returns what cannot be used and may be of one of these kinds, of which sessions with
// starts have the asynchronous one.
func (c *catalog) missingBinaries(starts bool, kinds ...Kind) []BinaryError {
	out := slices.DeleteFunc(slices.Clone(c.failures), func(f BinaryError) bool { return f.Kind != "" && !slices.Contains(kinds, f.Kind) })
	for _, p := range c.plugins {
		if starts || !isAsynchronous(p.Kind) || !slices.Contains(kinds, p.Kind) {
			continue
		}
		if _, served := c.findRegistration(twinKinds[p.Kind], p.Name); !served {
			out = append(out, BinaryError{Path: p.Path, Kind: p.Kind, Err: fmt.Errorf("%w: %s %s", ErrUnserved, p.Kind, p.Name)})
		}
	}
	return out
}

// effectivePlugins returns the plugins of the kinds that run: of a name that is registered under a kind
// and its newer one, the newer; of one that is an asynchronous action too, that.
func (c *catalog) effectivePlugins(kinds ...Kind) []Registration {
	var out []Registration
	for _, p := range c.plugins {
		if slices.Contains(kinds, p.Kind) && !c.isReplaced(p, kinds) {
			out = append(out, p)
		}
	}
	return out
}

func (c *catalog) isReplaced(p Registration, kinds []Kind) bool {
	if newer, has := preferredKinds[p.Kind]; has {
		_, replaced := c.findRegistration(newer, p.Name)
		return replaced
	}
	twin := twinKinds[p.Kind]
	_, replaced := c.findRegistration(twin, p.Name)
	return replaced && isAsynchronous(twin) && slices.Contains(kinds, twin)
}

func (c *catalog) findRegistration(kind Kind, name string) (Registration, bool) {
	i := slices.IndexFunc(c.plugins, func(p Registration) bool { return p.Kind == kind && p.Name == name })
	if i < 0 {
		return Registration{}, false
	}
	return c.plugins[i], true
}
