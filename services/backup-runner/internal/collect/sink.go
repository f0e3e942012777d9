package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/reference"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// sink writes the pages of one unit into the worker's part.
type sink struct {
	w    *worker
	u    *unit
	gr   schema.GroupResource
	main string // the backup's revision, "" if the unit is outside the cut
	meta objmeta.Meta
	// references finds what objects refer to, nil for kinds that refer to nothing.
	references *reference.Finder
	wants      *wants // what actions see of the kind, nil for nothing
	registered bool   // actions may see or ask for objects of the kind

	// State of the unit.
	revision string // of the page
	after    string // last key of the committed pages
	skipTo   string // keys up to this one are sealed already
	items    int    // objects taken
	begun    bool   // a page was committed
	reason   string // why the unit is not of the common revision
	expired  string // the common revision to replace by the next page's

	// State of the page, void after a rollback.
	page page
}

type page struct {
	mark       *part.Mark // where the part was before the page wrote to it
	ns, name   string     // last object seen
	items      int
	warnings   int
	errors     int
	namespaces map[string]struct{}
	seen       []string // names, of Namespace objects only
	volumes    []volume.Info
	stored     []known.Key // of the objects taken, where actions may ask for them
	held       []heldAt
	holdMark   *held.Mark // where the file of held objects was before the page
}

// empty returns a page that reuses the memory of a finished one.
func (p *page) empty() page { return page{stored: p.stored[:0], held: p.held[:0]} }

// Begin implements rawlist.Sink.
func (s *sink) Begin(revision string) error {
	s.revision = revision
	return nil
}

// Item implements rawlist.Sink.
func (s *sink) Item(item jsonlist.Item) error {
	if err := objmeta.Decode(item.Metadata, &s.meta); err != nil {
		return s.problem(joblog.Entry{Resource: s.gr.String(), Scoped: true,
			Message: "an object of this kind has metadata that cannot be read: it is not backed up", Err: err.Error()})
	}
	m := &s.meta
	s.page.ns, s.page.name = m.Namespace, m.Name
	if s.skipTo != "" && objectKey(m.Namespace, m.Name) <= s.skipTo {
		return nil
	}
	if !s.selected(item) {
		return nil
	}
	if s.registered {
		return s.route(item)
	}
	return s.take(item)
}

// selected decides on the object in s.meta.
func (s *sink) selected(item jsonlist.Item) bool {
	f, m := s.w.run.Filter, &s.meta
	object := selection.Object{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Deleting: m.Deleting()}
	if s.u.role == namespaceObjects {
		s.page.seen = append(s.page.seen, strings.Clone(m.Name))
		return f.Resource(namespaceGR, false) && f.NamespaceObject(object, isActive(item.Raw), s.w.run.facts.holds(m.Name))
	}
	if s.u.role == boundVolume && !s.w.run.facts.bound(m.Name) {
		return false
	}
	for _, other := range s.u.before {
		if other.Matches(m.Labels) {
			return false
		}
	}
	return f.Item(object)
}

func isActive(raw []byte) bool {
	var ns struct {
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	return json.Unmarshal(raw, &ns) == nil && ns.Status.Phase != "Terminating"
}

// take adds the object in s.meta to the part.
func (s *sink) take(item jsonlist.Item) error {
	if err := s.touch(); err != nil {
		return err
	}
	found, complete := s.references.Find(s.meta.Namespace, item.Raw)
	it := part.Item{
		GVK: s.u.res.Kind, Resource: s.u.res.Name, Preferred: true, Meta: &s.meta,
		Raw: item.Raw, HasTypeMeta: item.HasTypeMeta, Spaced: item.Spaced, References: found,
	}
	if s.revision != s.main {
		it.Cut = s.revision
	}
	err := s.w.open.Add(it)
	if errors.Is(err, part.ErrInvalidItem) {
		return s.problem(s.entry("object cannot be stored", err))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", objectKey(s.meta.Namespace, s.meta.Name), err)
	}
	s.page.items++
	if s.meta.Namespace != "" {
		s.inNamespace(s.meta.Namespace)
	}
	if !complete {
		if err := s.shortened(); err != nil {
			return err
		}
	}
	if s.gr == podGR || s.gr == claimGR || s.gr == volumeGR {
		return s.remark(item.Raw)
	}
	return nil
}

var shortenedMessage = fmt.Sprintf("the manifest names the first %d of the objects this one refers to", reference.Max)

// shortened notes that the manifest does not name all that the object refers to.
func (s *sink) shortened() error {
	entry := s.entry(shortenedMessage, nil)
	entry.Level = joblog.Info
	return s.note(entry)
}

func (s *sink) inNamespace(ns string) {
	if _, ok := s.page.namespaces[ns]; ok {
		return
	}
	if s.page.namespaces == nil {
		s.page.namespaces = map[string]struct{}{}
	}
	s.page.namespaces[strings.Clone(ns)] = struct{}{}
}

// touch remembers where the part was before this page.
func (s *sink) touch() error {
	if s.page.mark != nil {
		return nil
	}
	open, err := s.w.part()
	if err != nil {
		return err
	}
	mark, err := open.Mark()
	if err != nil {
		return fmt.Errorf("mark a page: %w", err)
	}
	s.page.mark = &mark
	return nil
}

// remark notes what is to be said about the object in s.meta, which is stored.
func (s *sink) remark(raw []byte) error {
	remarks, info := s.w.run.remarks(s.gr, &s.meta, raw)
	if info != nil {
		s.page.volumes = append(s.page.volumes, *info)
	}
	for _, e := range remarks {
		if e.Level == joblog.Warning {
			s.page.warnings++
		} else {
			s.page.errors++
		}
		if err := s.note(e); err != nil {
			return err
		}
	}
	return nil
}

// entry is a log entry about the object in s.meta.
func (s *sink) entry(message string, err error) joblog.Entry {
	return about(s.gr, s.meta.Namespace, s.meta.Name, message, err)
}

// problem notes a counted error on this page.
func (s *sink) problem(e joblog.Entry) error {
	s.page.errors++
	e.Level = joblog.Error
	return s.note(e)
}

func (s *sink) note(e joblog.Entry) error {
	if err := s.touch(); err != nil {
		return err
	}
	return s.w.note(e)
}

// Rollback implements rawlist.Sink.
func (s *sink) Rollback() error {
	mark, holdMark := s.page.mark, s.page.holdMark
	s.page = s.page.empty()
	if holdMark != nil {
		if err := s.w.hold.Rewind(*holdMark); err != nil {
			return fmt.Errorf("roll a page back: %w", err)
		}
	}
	if mark == nil {
		return nil
	}
	if err := s.w.open.Rewind(*mark); err != nil {
		return fmt.Errorf("roll a page back: %w", err)
	}
	return nil
}

// objectKey orders objects as an API server lists them.
func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Commit implements rawlist.Sink. What the unit's last page ends is noted in the
// part that holds the page: one is never recorded without the other.
func (s *sink) Commit(p rawlist.Page) error {
	w, done := s.w, s.page
	defer func() { s.page = done.empty() }()
	if done.items > 0 {
		w.run.facts.add(s.gr, done.namespaces)
		w.within(done.namespaces)
	}
	w.run.facts.bind(done.volumes)
	w.run.Progress.page(s.u.id(), done.items-len(done.held), p.Remaining)
	s.register(&done)
	w.run.Progress.noted(done.warnings, done.errors)
	w.record.Seen = append(w.record.Seen, w.run.facts.exist(done.seen)...)
	w.record.Volumes = append(w.record.Volumes, done.volumes...)
	last := s.after
	if done.name != "" {
		last = max(last, objectKey(done.ns, done.name))
	}
	s.covered(checkpoint.Range{Revision: s.revision, After: s.after, Last: last, Items: done.items, Continue: p.Continue, Done: p.Continue == ""})
	s.after, s.items, s.begun = last, s.items+done.items, true
	if s.expired != "" {
		w.run.Cut.Adopt(s.expired, s.revision)
		s.expired = ""
	}
	if p.Continue == "" {
		if err := s.finish(); err != nil {
			return err
		}
	}
	failpoint.Hit("backup-runner/page-committed")
	if w.full() {
		if err := w.seal(); err != nil {
			return err
		}
	}
	if p.Continue != "" && w.run.stopping() {
		return ErrStopped
	}
	return nil
}

// covered adds a range of the unit to the record of the part.
func (s *sink) covered(r checkpoint.Range) {
	kind := s.u.res.Kind
	r.Unit, r.Resource, r.Kind = s.u.id(), s.gr.String(), manifest.KindName(kind.Group, kind.Version, kind.Kind)
	r.Namespace, r.Reason = s.u.namespace, s.reason
	s.w.covered(r)
}
