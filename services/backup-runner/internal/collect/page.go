package collect

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// pendingPage is what a page brought that is not committed.
type pendingPage struct {
	part       *part.Writer // that the page writes to, nil while it does not
	mark       *part.Mark   // where the part was before
	ns, name   string       // last object seen
	items      int
	warnings   int
	errors     int
	namespaces map[string]struct{}
	seen       []string // names, of Namespace objects only
	volumes    []checkpoint.VolumeInfo
	stored     []itemset.Key        // of the objects taken, where actions may ask for them
	spooled    []spooledObject      // objects in the item spool
	spool      *itemset.SpoolWriter // that the page writes to, nil while it does not
	spoolMark  itemset.SpoolMark    // where the item spool was before
	spoolFile  uint32
}

// emptyPage returns a page that reuses the memory of a finished one.
func (p *pendingPage) emptyPage() pendingPage {
	return pendingPage{stored: p.stored[:0], spooled: p.spooled[:0]}
}

// keepPosition keeps the position of the part before this page.
func (s *unitSink) keepPosition() error {
	if s.page.part != nil {
		return nil
	}
	open, err := s.w.out.Part()
	if err != nil {
		return err
	}
	mark, err := open.Mark()
	if err != nil {
		return fmt.Errorf("mark a page: %w", err)
	}
	s.page.part, s.page.mark = open, &mark
	return nil
}

// Rollback implements rawlist.Sink.
func (s *unitSink) Rollback() error {
	done := s.page
	s.page = done.emptyPage()
	if done.spool != nil {
		if err := done.spool.Rewind(done.spoolMark); err != nil {
			return fmt.Errorf("roll a page back: %w", err)
		}
	}
	if done.part == nil {
		return nil
	}
	if err := done.part.Rewind(*done.mark); err != nil {
		return fmt.Errorf("roll a page back: %w", err)
	}
	return nil
}

// Commit implements rawlist.Sink. What the unit's last page ends is noted in the part that holds
// the page: one is never recorded without the other.
func (s *unitSink) Commit(p rawlist.Page) error {
	w, done := s.w, s.page
	defer func() { s.page = done.emptyPage() }()
	s.countPage(&done, p.Remaining)
	last := s.after
	if done.name != "" {
		last = max(last, partwriter.ObjectKey(done.ns, done.name))
	}
	s.coverRange(checkpoint.Range{Revision: s.revision, After: s.after, Last: last, Items: done.items, Continue: p.Continue, Done: p.Continue == ""})
	s.after, s.items, s.begun = last, s.items+done.items, true
	if s.expired != "" {
		w.cfg.Cut.Adopt(s.expired, s.revision)
		s.expired = ""
	}
	if p.Continue == "" {
		if err := s.finishUnit(); err != nil {
			return err
		}
	}
	failpoint.Hit("backup-runner/page-committed")
	if w.out.Full() {
		if err := w.out.Seal(); err != nil {
			return err
		}
	}
	if p.Continue != "" && w.cfg.Stop.Requested() {
		return plan.ErrStopped
	}
	return nil
}

// countPage counts a committed page, and hands on what it brought.
func (s *unitSink) countPage(done *pendingPage, remaining int64) {
	cfg, out := s.w.cfg, s.w.out
	if done.items > 0 {
		cfg.Facts.Add(s.gr, done.namespaces)
		out.Within(done.namespaces)
	}
	cfg.Facts.Bind(done.volumes)
	cfg.Progress.Page(s.u.ID(), done.items-len(done.spooled), remaining)
	s.registerPage(done)
	cfg.Progress.Noted(done.warnings, done.errors)
	out.Record.Seen = append(out.Record.Seen, cfg.Facts.Exist(done.seen)...)
	out.Record.Volumes = append(out.Record.Volumes, done.volumes...)
}

// finishUnit notes what the unit brought.
func (s *unitSink) finishUnit() error {
	if s.u.Role == plan.NamespaceObjects && s.u.Fields == "" {
		for _, name := range s.w.cfg.Facts.Absent() {
			err := s.w.out.Fail(joblog.Entry{Message: "the namespace is included by name and does not exist",
				Scoped: true, Namespace: name, Resource: s.gr.String(), Name: name})
			if err != nil {
				return err
			}
		}
	}
	if s.items == 0 {
		return nil
	}
	return s.w.out.Inform(joblog.Entry{Scoped: true, Namespace: s.u.Namespace, Resource: s.gr.String(),
		Message: fmt.Sprintf("Collected %d objects", s.items)})
}
