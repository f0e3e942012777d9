package dryrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// foundObject is an object that the backup would hold.
type foundObject struct {
	row    storedplan.Row
	key    itemset.Key
	volume *checkpoint.VolumeInfo
	raw    []byte // where actions are to see it, or Body
	acting bool   // actions are to see it
	extra  bool
	hooked bool
	// applied are the actions that ran.
	applied []string
}

// unitSink is a rawlist.Sink that decides on the objects of one unit.
type unitSink struct {
	p            *planner
	ctx          context.Context //nolint:containedctx // of the list
	u            *plan.Unit
	gr           schema.GroupResource
	safe, others *actionset.Wants
	registered   bool
	meta         objmeta.Meta
	committed    bool

	// State of the page.
	page    []foundObject
	seen    []string // Namespace objects
	leftOut int64
	bad     []string // messages
}

// needsBodies reports whether more than metadata decides on objects of the unit.
func (s *unitSink) needsBodies() bool {
	return s.p.Body != nil || s.safe != nil || s.gr == plan.Pods || s.gr == plan.Claims || s.gr == plan.Volumes
}

// listUnit lists one unit at the revision of the cut. A list that expires goes on at the newest revision.
func (p *planner) listUnit(ctx context.Context, u *plan.Unit) error {
	s := &unitSink{p: p, ctx: ctx, u: u, gr: u.Res.GroupResource()}
	s.safe, s.others = p.safe.Wants(s.gr), p.others.Wants(s.gr)
	s.registered = s.safe != nil || u.Role != plan.Plain || p.safe.Counts(s.gr)
	req := rawlist.Request{Resource: u.Res.GVR(), Namespace: u.Namespace, Selector: u.SelectorText(), Fields: u.Fields,
		Aggregated: u.Res.Aggregated, Metadata: !s.needsBodies()}
	var err error
	if req.Revision, _, err = p.Cut.Of(ctx, &u.Res, u.Namespace); err == nil {
		err = p.listPages(ctx, req, s)
	}
	var broken *rawlist.SinkError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &broken):
		return err
	}
	p.addGap(s.gr, "objects of %s could not be listed, or not all of them: %v", u.ID(), err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Unlisted[s.gr] = true
	return nil
}

func (p *planner) listPages(ctx context.Context, req rawlist.Request, s *unitSink) error {
	for expiries := 0; ; expiries++ {
		err := p.Lister.List(ctx, req, s)
		var expired *rawlist.ExpiredError
		switch {
		case errors.As(err, &expired) && expiries < cut.MaxExpiries && (expired.Continue != "" || !s.committed):
			req.Continue, req.Revision = expired.Continue, ""
		case errors.Is(err, rawlist.ErrRevision) && !s.committed && req.Revision != "":
			req.Revision = ""
		default:
			return err
		}
	}
}

// Begin implements rawlist.Sink.
func (s *unitSink) Begin(string) error { return nil }

// Item implements rawlist.Sink.
func (s *unitSink) Item(item jsonlist.Item) error {
	if err := objmeta.Decode(item.Metadata, &s.meta); err != nil {
		s.bad = append(s.bad, fmt.Sprintf("an object of %s has metadata that cannot be read: it would not be backed up: %v", s.gr, err))
		return nil
	}
	if s.u.Role == plan.NamespaceObjects {
		s.seen = append(s.seen, strings.Clone(s.meta.Name))
	}
	if !s.u.Selects(s.p.Filter, s.p.facts, &s.meta, item.Raw) {
		s.leftOut++
		return nil
	}
	extra, others := plan.IsExtra(s.p.Filter, s.gr, &s.meta), s.others
	if extra {
		others = nil // no action sees it
	}
	o := s.p.describeObject(&s.u.Res.Kind, s.gr, &s.meta, item.Raw, others)
	switch {
	case extra:
		o.addReason("the Namespace of selected objects")
	case s.u.Role == plan.Definition:
		o.addReason("the definition of selected objects")
	case s.u.Role == plan.BoundVolume:
		o.addReason("the volume of a selected claim")
	}
	o.extra, o.acting = extra, !extra && s.safe.Touch(&s.meta, item.Raw)
	if o.acting || s.p.Body != nil {
		o.raw = typedObject(&o.row, item)
	}
	s.page = append(s.page, o)
	return nil
}

func typedObject(row *storedplan.Row, item jsonlist.Item) []byte {
	if item.HasTypeMeta {
		return bytes.Clone(item.Raw)
	}
	return itemset.AppendTyped(nil, &itemset.SpooledItem{Group: row.Group, Version: row.Version, Kind: row.Kind, Raw: item.Raw})
}

func (o *foundObject) addReason(text string) { o.row.Reasons = append(o.row.Reasons, text) }

// describeObject returns an object that is selected, with what is known without calling an action. raw may be its metadata alone.
func (p *planner) describeObject(kind *schema.GroupVersionKind, gr schema.GroupResource, m *objmeta.Meta, raw []byte, others *actionset.Wants) foundObject {
	o := foundObject{row: storedplan.Row{Group: kind.Group, Version: kind.Version, Kind: kind.Kind,
		Namespace: strings.Clone(m.Namespace), Name: strings.Clone(m.Name), Action: storedplan.ActionStore}}
	o.key = itemset.KeyOf(kind.GroupKind(), m.Namespace, m.Name)
	if gr == plan.Pods {
		o.hooked = p.describeHooks(m, &o)
	}
	if gr == plan.Pods || gr == plan.Claims || gr == plan.Volumes {
		entries, info := p.rules.Of(gr, m, raw)
		for i := range entries {
			o.addReason(entries[i].Message)
		}
		if o.volume = info; info != nil && info.Skipped && len(entries) == 0 {
			o.addReason("volume data would not be backed up: " + info.SkippedReason)
		}
	}
	if others == nil {
		return o
	}
	for i := range others.Chain.Actions {
		if a := &others.Chain.Actions[i]; actionset.MatchesObject(a, m, raw) {
			o.row.Unknown = append(o.row.Unknown, "action "+a.Action.Name()+" may change the object and add others")
			p.noteNotCalled(a.Action.Name())
		}
	}
	return o
}

func (p *planner) noteNotCalled(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notCalled[name] = struct{}{}
}

// describeHooks reports whether a Pod has hooks that would run, if it is running then.
func (p *planner) describeHooks(m *objmeta.Meta, o *foundObject) bool {
	if p.Hooks == nil {
		return false
	}
	around, err := p.Hooks.Of(&hook.Pod{Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations})
	if err != nil {
		o.addReason("hooks cannot run: " + err.Error())
		return false
	}
	if !around.Any() {
		return false
	}
	o.addReason(fmt.Sprintf("hooks run while the Pod does: %d pre, %d post", len(around.Pre), len(around.Post)))
	return true
}

// Rollback implements rawlist.Sink.
func (s *unitSink) Rollback() error {
	s.page, s.seen, s.leftOut, s.bad = s.page[:0], s.seen[:0], 0, nil
	return nil
}

// Commit implements rawlist.Sink.
func (s *unitSink) Commit(rawlist.Page) error {
	s.committed = true
	p, kind := s.p, s.u.Res.Kind
	for _, text := range s.bad {
		p.addGap(s.gr, "%s", text)
	}
	p.facts.Exist(s.seen)
	namespaces, added := map[string]struct{}{}, false
	for i := range s.page {
		o := &s.page[i]
		if s.registered {
			p.items.SetResult(itemset.Stored, o.key)
		}
		stored, err := p.addObject(s.ctx, s.gr, o)
		if err != nil {
			return err
		}
		if added = added || stored; stored && o.row.Namespace != "" {
			namespaces[o.row.Namespace] = struct{}{}
		}
	}
	if added {
		p.facts.Add(s.gr, namespaces)
	}
	if s.u.Role == plan.Plain && s.leftOut > 0 {
		p.mu.Lock()
		p.countOf(&kind).LeftOut += s.leftOut
		p.mu.Unlock()
	}
	return s.Rollback()
}

// countOf returns the count of a kind; p.mu is held.
func (p *planner) countOf(kind *schema.GroupVersionKind) *Count {
	name := manifest.KindName(kind.Group, kind.Version, kind.Kind)
	c := p.result.Kinds[name]
	if c == nil {
		c = &Count{}
		p.result.Kinds[name] = c
	}
	return c
}

// addObject adds an object that the backup would hold, after the actions that may be called, and reports whether these let it be.
func (p *planner) addObject(ctx context.Context, gr schema.GroupResource, o *foundObject) (stored bool, err error) {
	if o.acting && !p.callActions(ctx, gr, o) {
		return false, context.Cause(ctx)
	}
	if p.Body != nil {
		if err := p.sendBody(gr, o); err != nil {
			return false, err
		}
	}
	if o.volume != nil {
		p.facts.Bind([]checkpoint.VolumeInfo{*o.volume})
	}
	p.countObject(o)
	return true, p.addRow(o.row)
}

func (p *planner) addRow(row storedplan.Row) error {
	if p.Rows == nil {
		return nil
	}
	return p.Rows.Add(row)
}

// sendBody gives Body an object.
func (p *planner) sendBody(gr schema.GroupResource, o *foundObject) error {
	kind := schema.GroupVersionKind{Group: o.row.Group, Version: o.row.Version, Kind: o.row.Kind}
	object, err := actionset.ParseObject(kind, o.raw)
	if err == nil {
		p.bodies.Lock()
		defer p.bodies.Unlock()
		err = p.Body(part.Item{GVK: kind, Resource: gr.Resource, Preferred: true, Meta: object.Meta, Raw: object.Raw, Envelope: object.Envelope,
			HasTypeMeta: true, Spaced: object.Spaced, Extra: o.extra, Actions: o.applied})
		if !errors.Is(err, part.ErrInvalidItem) {
			return err
		}
	}
	p.addGap(gr, "%s cannot be stored: %v", action.Item{GroupResource: gr, Namespace: o.row.Namespace, Name: o.row.Name}, err)
	return nil
}

func (p *planner) countObject(o *foundObject) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row, v := &o.row, o.volume
	p.countOf(&schema.GroupVersionKind{Group: row.Group, Version: row.Version, Kind: row.Kind}).Objects++
	p.result.Objects++
	p.result.Namespaces[row.Namespace]++
	if o.hooked {
		p.result.HookedPods++
	}
	if v != nil && v.Skipped {
		p.result.Volumes = append(p.result.Volumes, Volume{Name: v.PVName, Claim: v.PVCNamespace + "/" + v.PVCName, Reason: v.SkippedReason})
	}
	if p.Progress != nil {
		p.Progress(p.result.Objects)
	}
}
