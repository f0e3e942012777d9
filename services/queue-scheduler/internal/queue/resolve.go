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

func (s *Scheduler) liveNamespacesOf(ctx context.Context, v *passView) *liveNamespaces {
	if v.live == nil {
		v.live = &liveNamespaces{expanded: map[string][]string{}}
		v.live.names, v.live.excluded, v.live.err = s.Validator.Namespaces(ctx)
	}
	return v.live
}

// resolveBackup expands the namespaces a backup selects, sorted; no filter at all is [ledger.All],
// without what carries the exclude label. Its results are kept for the whole pass.
func (s *Scheduler) resolveBackup(ctx context.Context, v *passView, b *velerov1.Backup) ([]string, error) {
	if found, ok := v.spaces[b.UID]; ok {
		return found, nil
	}
	live := s.liveNamespacesOf(ctx, v)
	if live.err != nil {
		return nil, live.err
	}
	found := live.expandSpec(&b.Spec)
	v.spaces[b.UID] = found
	return found, nil
}

// allIncluded are all namespaces but those that carry the label: of a backup without a filter of its own.
// One that is made later belongs to it.
func (l *liveNamespaces) allIncluded() []string {
	if len(l.excluded) == 0 {
		return []string{ledger.All}
	}
	return ledger.AllBut(l.excluded)
}

// selectsEverything reports that nothing but the label narrows the choice. Validation adds the labelled
// namespaces to the spec.
func (l *liveNamespaces) selectsEverything(spec *velerov1.BackupSpec) bool {
	named := func(ns string) bool { return ns != "" && !slices.Contains(l.excluded, ns) }
	return (len(spec.IncludedNamespaces) == 0 || slices.Contains(spec.IncludedNamespaces, selection.All)) &&
		!slices.ContainsFunc(spec.ExcludedNamespaces, named)
}

// expandSpec lists the namespaces only for patterns, and once for the same ones: the backups of
// a schedule share them.
func (l *liveNamespaces) expandSpec(spec *velerov1.BackupSpec) []string {
	if l.selectsEverything(spec) {
		return l.allIncluded()
	}
	excludes := spec.ExcludedNamespaces
	if len(l.excluded) > 0 {
		excludes = slices.Concat(excludes, l.excluded)
	}
	if len(spec.IncludedNamespaces) > 0 && !slices.ContainsFunc(spec.IncludedNamespaces, isOpenEntry) {
		if len(excludes) == 0 && isRising(spec.IncludedNamespaces) {
			return spec.IncludedNamespaces
		}
		return selection.ExpandNamespaces(spec.IncludedNamespaces, excludes, nil)
	}
	key := strings.Join(spec.IncludedNamespaces, "\x00") + "\x01" + strings.Join(spec.ExcludedNamespaces, "\x00")
	found, ok := l.expanded[key]
	if !ok {
		found = l.compactSet(spec, selection.ExpandNamespaces(spec.IncludedNamespaces, excludes, l.names), excludes)
		l.expanded[key] = found
	}
	return found
}

// compactSet stores a set that does not fit into the ledger as its complement, if the filter only
// excludes and the complement is smaller: it overlaps with at least as much.
func (l *liveNamespaces) compactSet(spec *velerov1.BackupSpec, found, excludes []string) []string {
	all := len(spec.IncludedNamespaces) == 0 || slices.Contains(spec.IncludedNamespaces, selection.All)
	if ledger.Size(found) <= ledger.MaxNamespaces || !all || slices.ContainsFunc(excludes, isOpenEntry) {
		return found
	}
	if rest := ledger.AllBut(excludes); ledger.Size(rest) < ledger.Size(found) {
		return rest
	}
	return found
}

// isRising reports that names are sorted and each is there once.
func isRising(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// isOpenEntry reports that what an entry of a filter selects depends on what exists.
func isOpenEntry(name string) bool { return name == "" || selection.IsPattern(name) }
