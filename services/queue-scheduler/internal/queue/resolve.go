package queue

import (
	"context"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// liveNamespaces are those of the cluster, read at most once a pass, and once only in an outage
// too.
type liveNamespaces struct {
	names    []string
	excluded []string // those of them that no backup takes, regardless of its filters
	err      error
	expanded map[string][]string // what filters with patterns came to
}

// resolver finds the namespaces of backups.
type resolver struct{ validator Validator }

func (r *resolver) namespaces(ctx context.Context, v *view) *liveNamespaces {
	if v.live == nil {
		v.live = &liveNamespaces{expanded: map[string][]string{}}
		v.live.names, v.live.excluded, v.live.err = r.validator.Namespaces(ctx)
	}
	return v.live
}

// resolve expands the namespaces a backup selects, sorted; no filter at all is [ledger.All],
// without what carries the exclude label. Its results are kept for the whole pass.
func (r *resolver) resolve(ctx context.Context, v *view, b *velerov1.Backup) ([]string, error) {
	if found, ok := v.spaces[b.UID]; ok {
		return found, nil
	}
	if suspended(b) { // it continues with what it was admitted for
		if noted, ok, err := notedNamespaces(b); ok && err == nil {
			v.spaces[b.UID] = noted
			return noted, nil
		}
	}
	live := r.namespaces(ctx, v)
	if live.err != nil {
		return nil, live.err
	}
	found := live.expand(&b.Spec)
	v.spaces[b.UID] = found
	return found, nil
}

// whole are all namespaces but those that carry the label: of a backup without a filter of its own.
// One that is made later belongs to it.
func (l *liveNamespaces) whole() []string {
	if len(l.excluded) == 0 {
		return []string{ledger.All}
	}
	return ledger.AllBut(l.excluded)
}

// everything reports that nothing but the label narrows the choice. Validation adds the labelled
// namespaces to the spec.
func (l *liveNamespaces) everything(spec *velerov1.BackupSpec) bool {
	named := func(ns string) bool { return ns != "" && !slices.Contains(l.excluded, ns) }
	return (len(spec.IncludedNamespaces) == 0 || slices.Contains(spec.IncludedNamespaces, selection.All)) &&
		!slices.ContainsFunc(spec.ExcludedNamespaces, named)
}

// expand lists the namespaces only for patterns, and once for the same ones: the backups of
// a schedule share them.
func (l *liveNamespaces) expand(spec *velerov1.BackupSpec) []string {
	if l.everything(spec) {
		return l.whole()
	}
	excludes := spec.ExcludedNamespaces
	if len(l.excluded) > 0 {
		excludes = slices.Concat(excludes, l.excluded)
	}
	if len(spec.IncludedNamespaces) > 0 && !slices.ContainsFunc(spec.IncludedNamespaces, open) {
		if len(excludes) == 0 && rising(spec.IncludedNamespaces) {
			return spec.IncludedNamespaces
		}
		return selection.ExpandNamespaces(spec.IncludedNamespaces, excludes, nil)
	}
	key := strings.Join(spec.IncludedNamespaces, "\x00") + "\x01" + strings.Join(spec.ExcludedNamespaces, "\x00")
	found, ok := l.expanded[key]
	if !ok {
		found = l.compact(spec, selection.ExpandNamespaces(spec.IncludedNamespaces, excludes, l.names), excludes)
		l.expanded[key] = found
	}
	return found
}

// compact stores a set that does not fit into the ledger as its complement, if the filter only
// excludes and the complement is smaller: it overlaps with at least as much.
func (l *liveNamespaces) compact(spec *velerov1.BackupSpec, found, excludes []string) []string {
	all := len(spec.IncludedNamespaces) == 0 || slices.Contains(spec.IncludedNamespaces, selection.All)
	if ledger.Size(found) <= ledger.MaxNamespaces || !all || slices.ContainsFunc(excludes, open) {
		return found
	}
	if rest := ledger.AllBut(excludes); ledger.Size(rest) < ledger.Size(found) {
		return rest
	}
	return found
}

// rising reports that names are sorted and each is there once.
func rising(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// open reports that what an entry of a filter selects depends on what exists.
func open(name string) bool { return name == "" || selection.IsPattern(name) }
