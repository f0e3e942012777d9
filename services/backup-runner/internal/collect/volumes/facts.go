package volumes

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Facts are what lists learn from one another. Safe for concurrent use.
type Facts struct {
	mu         sync.Mutex
	missing    []string // namespaces the user named that were not seen yet
	namespaces map[string]struct{}
	resources  map[schema.GroupResource]struct{}
	volumes    map[string]struct{} // named by collected claims
	pending    map[string]Volume   // volumes to be decided on
	decided    map[string]struct{} // volumes that need no decision any more: some have a CSI snapshot
	extras     bool                // objects were stored that no list selected
}

// Volume is a volume that may get a snapshot.
type Volume struct {
	Stored bool // the volume itself is in the backup
	Claims []checkpoint.VolumeInfo
}

// NewFacts returns what is known before anything is listed.
func NewFacts(b *velerov1.Backup) *Facts {
	f := &Facts{namespaces: map[string]struct{}{}, resources: map[schema.GroupResource]struct{}{}, volumes: map[string]struct{}{}, decided: map[string]struct{}{}}
	for _, name := range b.Spec.IncludedNamespaces {
		if name != "" && !selection.IsPattern(name) {
			f.missing = append(f.missing, name)
		}
	}
	return f
}

// Add records that a page held objects of these namespaces.
func (f *Facts) Add(gr schema.GroupResource, namespaces map[string]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resources[gr] = struct{}{}
	maps.Copy(f.namespaces, namespaces)
}

// Within records that objects of these namespaces were collected.
func (f *Facts) Within(namespaces []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ns := range namespaces {
		f.namespaces[ns] = struct{}{}
	}
}

// Bind records the volumes of collected claims, and collected volumes.
func (f *Facts) Bind(claims []checkpoint.VolumeInfo) {
	if len(claims) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range claims {
		claim := &claims[i]
		if claim.PVName != "" && claim.PVCName != "" {
			f.volumes[claim.PVName] = struct{}{}
		}
		if claim.Method == checkpoint.MethodCSI {
			f.decided[claim.PVName] = struct{}{}
		}
		if !claim.Pending {
			continue
		}
		if f.pending == nil {
			f.pending = map[string]Volume{}
		}
		p := f.pending[claim.PVName]
		if claim.PVCName == "" {
			p.Stored = true
		} else {
			p.Claims = append(p.Claims, *claim)
		}
		f.pending[claim.PVName] = p
	}
}

// VolumesOf returns the volumes to be decided on of claims of a namespace, by name, with what is known
// of each.
func (f *Facts) VolumesOf(namespace string, claims []string) map[string]Volume {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]Volume{}
	for name, v := range f.pending {
		if _, decided := f.decided[name]; decided {
			continue
		}
		if slices.ContainsFunc(v.Claims, func(c checkpoint.VolumeInfo) bool {
			return c.PVCNamespace == namespace && slices.Contains(claims, c.PVCName)
		}) {
			out[name] = v
		}
	}
	return out
}

// Decided records that nothing is left to be decided on volumes.
func (f *Facts) Decided(names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.decided[name] = struct{}{}
	}
}

// Undecided returns the volumes to be decided on.
func (f *Facts) Undecided() map[string]Volume {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := maps.Clone(f.pending)
	maps.DeleteFunc(out, func(name string, _ Volume) bool {
		_, decided := f.decided[name]
		return decided
	})
	return out
}

// Bound reports whether a collected claim names that volume.
func (f *Facts) Bound(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.volumes[name]
	return ok
}

// BoundVolumes returns the volumes that collected claims name, sorted.
func (f *Facts) BoundVolumes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.volumes))
}

// Exist records that these namespaces exist and returns those the user named.
func (f *Facts) Exist(names []string) (named []string) {
	if len(names) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = slices.DeleteFunc(f.missing, func(n string) bool {
		seen := slices.Contains(names, n)
		if seen {
			named = append(named, n)
		}
		return seen
	})
	return named
}

// Absent returns the namespaces the user named that do not exist.
func (f *Facts) Absent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.missing)
}

// Holds reports whether an object of the namespace was collected.
func (f *Facts) Holds(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.namespaces[namespace]
	return ok
}

// Collected returns the resources with at least one object, sorted.
func (f *Facts) Collected() []schema.GroupResource {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]schema.GroupResource, 0, len(f.resources))
	for gr := range f.resources {
		out = append(out, gr)
	}
	slices.SortFunc(out, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// Namespaces returns the namespaces of collected objects, sorted.
func (f *Facts) Namespaces() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.namespaces))
}

// AddExtra records an object that no list selected.
func (f *Facts) AddExtra(gr schema.GroupResource, namespaces map[string]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extras = true
	f.resources[gr] = struct{}{}
	maps.Copy(f.namespaces, namespaces)
}

// Extras reports whether objects were stored that no list selected.
func (f *Facts) Extras() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extras
}

// Replay adds a record of an earlier holder.
func (f *Facts) Replay(rec *checkpoint.Record) {
	for i := range rec.Ranges {
		if rec.Ranges[i].Items > 0 {
			f.Add(schema.ParseGroupResource(rec.Ranges[i].Resource), nil)
		}
	}
	for _, gr := range rec.Resources {
		f.AddExtra(schema.ParseGroupResource(gr), nil)
	}
	f.Within(rec.Namespaces)
	f.Exist(rec.Seen)
	f.Bind(rec.Volumes)
}
