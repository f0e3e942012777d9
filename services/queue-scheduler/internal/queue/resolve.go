package queue

import (
	"context"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/selection"
)

// liveNamespaces are those of the cluster, read at most once a pass, and once
// only in an outage too.
type liveNamespaces struct {
	names    []string
	excluded []string // those of them no backup takes, whatever its filters say
	err      error
	expanded map[string][]string // what filters with patterns came to
}

func (s *Scheduler) namespaces(ctx context.Context, v *view) *liveNamespaces {
	if v.live == nil {
		v.live = &liveNamespaces{expanded: map[string][]string{}}
		v.live.names, v.live.excluded, v.live.err = s.Validator.Namespaces(ctx)
	}
	return v.live
}

// resolve expands the namespaces a backup selects, sorted; no filter at all is
// [ledger.All]. What it answered stands for the whole pass.
func (s *Scheduler) resolve(ctx context.Context, v *view, b *velerov1.Backup) ([]string, error) {
	if found, ok := v.spaces[b.UID]; ok {
		return found, nil
	}
	live := s.namespaces(ctx, v)
	if live.err != nil {
		return nil, live.err
	}
	found := live.expand(&b.Spec)
	v.spaces[b.UID] = found
	return found, nil
}

// expand looks through the namespaces only for patterns, and once for the same
// ones: the backups of a schedule share them.
func (l *liveNamespaces) expand(spec *velerov1.BackupSpec) []string {
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
		found = selection.ExpandNamespaces(spec.IncludedNamespaces, excludes, l.names)
		l.expanded[key] = found
	}
	return found
}

// rising tells that names are sorted and each is there once.
func rising(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// open tells that what an entry of a filter selects depends on what exists.
func open(name string) bool { return name == "" || selection.IsPattern(name) }
