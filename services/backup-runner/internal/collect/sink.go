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
}

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
	switch s.gr {
	case podGR:
		return s.pod()
	case claimGR:
		return s.claim(item.Raw)
	}
	return nil
}

// shortened notes that the manifest does not name all that the object refers to.
func (s *sink) shortened() error {
	entry := s.entry(fmt.Sprintf("the manifest names the first %d of the objects this one refers to", reference.Max), nil)
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

// pod reports what the pod's annotations ask for in vain.
func (s *sink) pod() error {
	for _, message := range unserved(s.meta.Annotations) {
		if err := s.problem(s.entry(message, nil)); err != nil {
			return err
		}
	}
	return nil
}

// claim lists the volume of a claim, whose data is not taken.
func (s *sink) claim(raw []byte) error {
	byChoice := s.w.run.facts.claimsByChoice
	info, err := volume.Skipped(raw, byChoice)
	if err != nil {
		return s.problem(s.entry("the volume of this claim is unknown", err))
	}
	info.PVCName, info.PVCNamespace = strings.Clone(s.meta.Name), strings.Clone(s.meta.Namespace)
	s.page.volumes = append(s.page.volumes, info)
	if byChoice {
		return nil
	}
	s.page.warnings++
	entry := s.entry("volume data was not backed up: "+info.SkippedReason, nil)
	entry.Level = joblog.Warning
	return s.note(entry)
}

// entry is a log entry about the object in s.meta.
func (s *sink) entry(message string, err error) joblog.Entry {
	e := joblog.Entry{Message: message, Scoped: true, Namespace: s.meta.Namespace, Resource: s.gr.String(), Name: s.meta.Name}
	if err != nil {
		e.Err = err.Error()
	}
	return e
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
	mark := s.page.mark
	s.page = page{}
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
	s.page = page{}
	if done.items > 0 {
		w.run.facts.add(s.gr, done.namespaces)
		w.within(done.namespaces)
	}
	w.run.facts.bind(done.volumes)
	w.run.Progress.page(s.u.id(), done.items, p.Remaining)
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
