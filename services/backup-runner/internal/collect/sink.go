package collect

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// unitSink is a rawlist.Sink that writes the pages of one unit into the worker's part.
type unitSink struct {
	w    *unitWorker
	u    *plan.Unit
	gr   schema.GroupResource
	main string // the backup's revision, "" if the unit is outside the cut
	meta objmeta.Meta
	// references finds what objects refer to, nil for kinds that refer to nothing.
	references *reference.Finder
	wants      *actionset.Wants // what actions see of the kind, nil for nothing
	registered bool             // actions may see or ask for objects of the kind

	// State of the unit.
	revision string // of the page
	after    string // last key of the committed pages
	skipTo   string // keys up to this one are sealed already
	items    int    // objects taken
	begun    bool   // a page was committed
	reason   string // why the unit is not of the common revision
	expired  string // the common revision to replace by the next page's

	// State of the page, void after a rollback.
	page pendingPage
}

// newSink returns what takes the unit's objects.
func (w *unitWorker) newSink(u *plan.Unit) *unitSink {
	s := &unitSink{w: w, u: u, gr: u.Res.GroupResource(), references: u.References(w.cfg.References)}
	if w.cfg.Items != nil {
		s.wants = w.cfg.Actions.Wants(s.gr)
		s.registered = s.wants != nil || u.Role != plan.Plain || w.cfg.Actions.Counts(s.gr)
	}
	return s
}

// resumeAt takes up a unit where an earlier holder left it.
func (s *unitSink) resumeAt(at *history.Position) {
	s.revision, s.reason, s.after, s.items, s.begun = at.Revision, at.Reason, at.Last, at.Total, true
	if at.Last == at.After || at.Continue == "" {
		s.skipTo = at.Last // its list had not come to new objects
	}
}

// Begin implements rawlist.Sink.
func (s *unitSink) Begin(revision string) error {
	s.revision = revision
	return nil
}

// Item implements rawlist.Sink.
func (s *unitSink) Item(item jsonlist.Item) error {
	if err := objmeta.Decode(item.Metadata, &s.meta); err != nil {
		return s.noteProblem(joblog.Entry{Resource: s.gr.String(), Scoped: true,
			Message: "an object of this kind has metadata that cannot be read: it is not backed up", Err: err.Error()})
	}
	m := &s.meta
	s.page.ns, s.page.name = m.Namespace, m.Name
	if s.skipTo != "" && partwriter.ObjectKey(m.Namespace, m.Name) <= s.skipTo {
		return nil
	}
	if !s.isSelected(item) {
		return nil
	}
	if s.registered {
		return s.routeItem(item)
	}
	return s.takeItem(item)
}

// isSelected decides on the object in s.meta.
func (s *unitSink) isSelected(item jsonlist.Item) bool {
	if s.u.Role == plan.NamespaceObjects {
		s.page.seen = append(s.page.seen, strings.Clone(s.meta.Name))
	}
	return s.u.Selects(s.w.cfg.Filter, s.w.cfg.Facts, &s.meta, item.Raw)
}

// coverRange adds a range of the unit to the record of the part.
func (s *unitSink) coverRange(r checkpoint.Range) {
	kind := s.u.Res.Kind
	r.Unit, r.Resource, r.Kind = s.u.ID(), s.gr.String(), manifest.KindName(kind.Group, kind.Version, kind.Kind)
	r.Namespace, r.Reason = s.u.Namespace, s.reason
	s.w.out.Cover(r)
}
