package selection

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourceSet is a list of resources as people name them, resolved once: names, patterns with '*', '?' and
// '[..]' of what "kubectl api-resources -o name" prints ("*.longhorn.io"), and All. Immutable. Only a list with
// patterns makes Has allocate.
type ResourceSet struct {
	all      bool
	named    map[schema.GroupResource]struct{}
	patterns []string // in lower case
	// unknown are names that no served resource has.
	unknown []unknownName
}

type unknownName struct {
	text string
	gr   schema.GroupResource
}

// NewResourceSet resolves the names. Unknown ones stay literal, so that a kind whose group is down now is still
// matched by its full name. Empty names are passed over.
func NewResourceSet(names []string, r Resolver) ResourceSet {
	return newScopedList("", names, r, anyScope).ResourceSet
}

// takeName returns the resource that a name means; ok is false for an entry that is no name.
func (s *ResourceSet) takeName(name string, r Resolver) (gr schema.GroupResource, namespaced, ok bool) {
	switch {
	case name == "":
		return gr, false, false
	case name == All:
		s.all = true
		return gr, false, false
	case IsPattern(name):
		s.patterns = append(s.patterns, strings.ToLower(name))
		return gr, false, false
	}
	if gr, namespaced, ok = r.Resolve(name); !ok {
		gr = schema.ParseGroupResource(strings.ToLower(name))
		s.unknown = append(s.unknown, unknownName{name, gr})
	}
	return gr, namespaced, true
}

// IsEmpty reports whether the list has no entry.
func (s *ResourceSet) IsEmpty() bool { return !s.all && len(s.named) == 0 && len(s.patterns) == 0 }

// Has reports whether the list names the resource.
func (s *ResourceSet) Has(gr schema.GroupResource) bool {
	if s.all {
		return true
	}
	if _, ok := s.named[gr]; ok {
		return true
	}
	return len(s.patterns) > 0 && MatchesAny(s.patterns, gr.String())
}

// hasGroup reports whether the list names every resource of a group, whatever they are called: a pattern of it
// begins with '*' ("*.metrics.k8s.io").
func (s *ResourceSet) hasGroup(group string) bool {
	return s.all || slices.ContainsFunc(s.patterns, func(pattern string) bool {
		return pattern[0] == '*' && MatchesAny([]string{pattern}, "."+group)
	})
}

// mayHave reports whether the list may name a resource of a group version whose resources are not known: it means
// every resource, or has a pattern or an unknown name that fits.
func (s *ResourceSet) mayHave(gv schema.GroupVersion) bool {
	if s.all {
		return true
	}
	for _, name := range s.unknown {
		if name.mayBeOf(gv) {
			return true
		}
	}
	for _, pattern := range s.patterns {
		tail, group := pattern[strings.LastIndexAny(pattern, "*?]")+1:], "."+gv.Group
		if strings.HasSuffix(group, tail) || strings.HasSuffix(tail, group) {
			return true
		}
	}
	return false
}

// mayBeOf reports whether a name may be one of the group version, in any of the forms that a Resolver accepts
// ("foos", "foos.example", "foos.v1.example.com").
func (n unknownName) mayBeOf(gv schema.GroupVersion) bool {
	return strings.HasPrefix(gv.Group, n.gr.Group) || n.gr.Group == gv.Version+"."+gv.Group
}

// CheckResources returns the problems of patterns in a pair of lists of resources.
func CheckResources(includes, excludes []string) (errs []error) {
	for _, entry := range slices.Concat(includes, excludes) {
		if _, err := path.Match(entry, ""); err != nil {
			errs = append(errs, &ListError{Entry: entry, Err: fmt.Errorf("%w: %w", ErrResourcePattern, err)})
		}
	}
	return errs
}

// NonRestorable are resources that no restore creates (Velero 1.18): they describe machines, or the backup system
// itself. Validation excludes them from every restore.
var NonRestorable = []string{
	"nodes", "events", "events.events.k8s.io", "backups.velero.io", "restores.velero.io", "resticrepositories.velero.io",
	"csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io", "backuprepositories.velero.io",
}

// Snapshot objects are the business of volume snapshots and never backed up as plain resources (Velero 1.18).
// Validation excludes them from every backup.
const (
	VolumeSnapshots        = "volumesnapshots.snapshot.storage.k8s.io"
	VolumeSnapshotContents = "volumesnapshotcontents.snapshot.storage.k8s.io"
)

// Unmatched returns a warning for each name in the lists of resources that matches nothing, with the reason why.
// Left out are names that validation adds, and those that may be of a group version that did not answer.
func (f *Filter) Unmatched(silent []schema.GroupVersion, reason string) (warnings []string) {
	for _, l := range []*scopedList{&f.resources.in, &f.resources.out, &f.cluster.in, &f.cluster.out, &f.namespaced.in, &f.namespaced.out} {
		for _, name := range l.strangers {
			warnings = append(warnings, fmt.Sprintf("spec.%s: %q matches nothing: the resource is of the other scope; name it in spec.%s", l.field, name, otherScope.Replace(l.field)))
		}
		for _, name := range l.unknown {
			added := name.text == VolumeSnapshots || name.text == VolumeSnapshotContents || slices.Contains(NonRestorable, name.text)
			if !added && !slices.ContainsFunc(silent, name.mayBeOf) {
				warnings = append(warnings, fmt.Sprintf("spec.%s: %q matches nothing: %s", l.field, name.text, reason))
			}
		}
	}
	return warnings
}

var otherScope = strings.NewReplacer("ClusterScoped", "NamespaceScoped", "NamespaceScoped", "ClusterScoped")
