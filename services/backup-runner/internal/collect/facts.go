package collect

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// facts are what units learn from one another. Safe for concurrent use.
type facts struct {
	// claimsByChoice is true when the user asked not to take volume data.
	claimsByChoice bool

	mu         sync.Mutex
	missing    []string // namespaces the user named that were not seen yet
	namespaces map[string]struct{}
	resources  map[schema.GroupResource]struct{}
	volumes    map[string]struct{} // named by collected claims
	pending    map[string]pending  // volumes to be decided on
}

// pending is a volume that may get a snapshot.
type pending struct {
	stored bool // the volume itself is in the backup
	claims []volume.Info
}

func newFacts(b *velerov1.Backup) *facts {
	f := &facts{namespaces: map[string]struct{}{}, resources: map[schema.GroupResource]struct{}{}, volumes: map[string]struct{}{}}
	for _, name := range b.Spec.IncludedNamespaces {
		if name != "" && !selection.IsPattern(name) {
			f.missing = append(f.missing, name)
		}
	}
	f.claimsByChoice = b.Spec.SnapshotVolumes != nil && !*b.Spec.SnapshotVolumes
	return f
}

// add records that a page held objects of these namespaces.
func (f *facts) add(gr schema.GroupResource, namespaces map[string]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resources[gr] = struct{}{}
	maps.Copy(f.namespaces, namespaces)
}

// within records that objects of these namespaces were collected.
func (f *facts) within(namespaces []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ns := range namespaces {
		f.namespaces[ns] = struct{}{}
	}
}

// bind records the volumes of collected claims, and collected volumes.
func (f *facts) bind(claims []volume.Info) {
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
		if !claim.Pending {
			continue
		}
		if f.pending == nil {
			f.pending = map[string]pending{}
		}
		p := f.pending[claim.PVName]
		if claim.PVCName == "" {
			p.stored = true
		} else {
			p.claims = append(p.claims, *claim)
		}
		f.pending[claim.PVName] = p
	}
}

// undecided returns the volumes to be decided on.
func (f *facts) undecided() map[string]pending {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.pending)
}

// bound reports whether a collected claim names that volume.
func (f *facts) bound(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.volumes[name]
	return ok
}

// boundVolumes returns the volumes that collected claims name, sorted.
func (f *facts) boundVolumes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.volumes))
}

// exist records that these namespaces exist and returns those the user named.
func (f *facts) exist(names []string) (named []string) {
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

// absent returns the namespaces the user named that do not exist.
func (f *facts) absent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.missing)
}

// holds reports whether an object of the namespace was collected.
func (f *facts) holds(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.namespaces[namespace]
	return ok
}

// collected returns the resources with at least one object, sorted.
func (f *facts) collected() []schema.GroupResource {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]schema.GroupResource, 0, len(f.resources))
	for gr := range f.resources {
		out = append(out, gr)
	}
	slices.SortFunc(out, func(a, b schema.GroupResource) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// held returns the namespaces of collected objects, sorted.
func (f *facts) held() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.namespaces))
}
