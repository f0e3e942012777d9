package collect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// past is what earlier holders of the backup recorded. It does not change while
// units are collected.
type past struct {
	start *checkpoint.Start   // nil if nothing was recorded
	units map[string]position // that were begun and are not done
	done  map[known.Key]struct{}
	ended bool // the last log entry is recorded

	// What earlier holders left to actions, and made of it.
	held    []checkpoint.Held
	leftOut []known.Key
	parts   []checkpoint.Part
	aside   []known.Key
	// joined are the objects that were processed aside and whose block is done.
	joined map[known.Key]struct{}
}

// unitKey stands for a unit: of those that are done there may be very many.
func unitKey(id string) known.Key { return known.KeyOf(schema.GroupKind{}, "", id) }

// isDone reports whether a unit was listed to its end.
func (p *past) isDone(id string) bool {
	_, done := p.done[unitKey(id)]
	return done
}

// cover notes how far a unit was listed.
func (p *past) cover(last *checkpoint.Range) {
	if last.Done {
		delete(p.units, last.Unit)
		p.done[unitKey(last.Unit)] = struct{}{}
		return
	}
	p.units[last.Unit] = position{Range: *last, items: p.units[last.Unit].items + last.Items}
}

// position is how far a unit has come.
type position struct {
	checkpoint.Range     // the last one
	items            int // of all of them
}

// restore reads what earlier holders recorded, one after the other.
func (r *run) restore(ctx context.Context) error {
	r.past.units, r.past.done, r.past.joined = map[string]position{}, map[known.Key]struct{}{}, map[known.Key]struct{}{}
	var revisions []string
	keys := r.records.Earlier()
	err := checkpoint.Each(ctx, r.Store, r.Backup.Name, string(r.Backup.UID), keys, func(key string, rec *checkpoint.Record) error {
		if len(rec.Revisions) > len(revisions) {
			revisions = rec.Revisions
		}
		r.replay(key, rec)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was collected before: %w", err)
	}
	if len(keys) > 0 {
		r.Cut.Restore(revisions)
		r.Log.InfoContext(ctx, "collection goes on", "records", len(keys), "items", r.result.Items)
	}
	failpoint.Hit("backup-runner/resumed")
	return nil
}

// replay brings the run to where it was after one record.
func (r *run) replay(key string, rec *checkpoint.Record) {
	if rec.Start != nil {
		r.past.start = rec.Start
	}
	r.past.ended = r.past.ended || rec.Ended
	for i := range rec.Ranges {
		last := &rec.Ranges[i]
		r.past.cover(last)
		if last.Items > 0 {
			r.facts.add(schema.ParseGroupResource(last.Resource), nil)
		}
	}
	for _, gr := range rec.Resources {
		r.facts.add(schema.ParseGroupResource(gr), nil)
		r.extras.Store(true)
	}
	if rec.Held != nil {
		r.past.held = append(r.past.held, *rec.Held)
	}
	if rec.Part.SidecarKey != "" {
		r.past.parts = append(r.past.parts, rec.Part)
	}
	for i := range rec.LeftOut {
		r.past.leftOut = append(r.past.leftOut, keyOf(&rec.LeftOut[i]))
	}
	for i := range rec.Aside {
		r.past.aside = append(r.past.aside, keyOf(&rec.Aside[i]))
	}
	for i := range rec.Joined {
		r.past.joined[keyOf(&rec.Joined[i])] = struct{}{}
	}
	r.facts.within(rec.Namespaces)
	r.facts.exist(rec.Seen)
	r.facts.bind(rec.Volumes)
	r.calls.replay(key, rec)
	r.shots.replay(rec)
	if rec.Covers() {
		r.sealed(key, &rec.Part)
	}
	r.Progress.restore(rec.Part.Items, rec.Part.Warnings, rec.Part.Errors)
}

// vanished notes the units that were to be collected and are served no longer, or
// whose group still does not answer.
func (w *worker) vanished(planned []kindList) error {
	for _, kind := range w.run.past.start.Kinds {
		if slices.ContainsFunc(planned, func(l kindList) bool { return l.name() == kind }) {
			continue
		}
		gone := kindList{spread: kind.Spread}
		gr := schema.ParseGroupResource(kind.Resource)
		gone.res.Kind.Group, gone.res.Name = gr.Group, gr.Resource
		for u := range gone.units(w.run.Filter) {
			if err := w.lost(&u); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost notes a unit that cannot be listed any more, unless it is done.
func (w *worker) lost(u *unit) error {
	id, kind := u.id(), u.res.String()
	if w.run.past.isDone(id) {
		return nil
	}
	at := w.run.past.units[id]
	reason := "it is no longer served"
	if group := u.res.Kind.Group; silent(w.run.Catalog, group) {
		reason = fmt.Sprintf("API group %q does not answer", group)
	}
	message := fmt.Sprintf("objects of this kind could not be listed, %s: they are not backed up", reason)
	if at.Last != "" {
		message = fmt.Sprintf("objects of this kind could not be listed beyond %q, %s: the rest of them is not backed up", at.Last, reason)
	}
	if err := w.fail(joblog.Entry{Message: message, Scoped: true, Namespace: u.namespace, Resource: kind}); err != nil {
		return err
	}
	w.covered(checkpoint.Range{Unit: id, Resource: kind, Kind: at.Kind, Namespace: u.namespace, Revision: at.Revision,
		Reason: at.Reason, After: at.Last, Last: at.Last, Done: true})
	return nil
}

// silent reports whether a version of the group was announced and did not answer.
func silent(c *resource.Catalog, group string) bool {
	return slices.ContainsFunc(c.Failures(), func(f resource.GroupFailure) bool { return f.GroupVersion.Group == group })
}

// discoveries is how often a holder that takes over discovers the cluster while a
// group does not answer of which something is left to be collected.
const discoveries = 5

// rediscover waits a while for groups of which something is left to be collected
// and that do not answer: an aggregated server that restarts has not gone.
func (r *run) rediscover(ctx context.Context) error {
	pause := time.Second
	for n := 1; n < discoveries && r.Discover != nil && r.missing(); n++ {
		timer := r.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		pause *= 2
		catalog, filter, err := r.Discover(ctx)
		if err != nil {
			return fmt.Errorf("discover resources: %w", err)
		}
		r.Catalog, r.Filter = catalog, filter
	}
	return nil
}

// missing reports whether kinds are left whose group does not answer.
func (r *run) missing() bool {
	return slices.ContainsFunc(r.past.start.Kinds, func(kind checkpoint.Kind) bool {
		gr := schema.ParseGroupResource(kind.Resource)
		if _, served := r.Catalog.Lookup(gr); served || !silent(r.Catalog, gr.Group) {
			return false
		}
		l := kindList{spread: kind.Spread}
		l.res.Kind.Group, l.res.Name = gr.Group, gr.Resource
		for u := range l.units(r.Filter) {
			if !r.past.isDone(u.id()) {
				return true
			}
		}
		return false
	})
}

// resume takes up a unit where an earlier holder left it.
func (s *sink) resume(at position) {
	s.revision, s.reason, s.after, s.items, s.begun = at.Revision, at.Reason, at.Last, at.items, true
	if at.Last == at.After || at.Continue == "" {
		s.skipTo = at.Last // its list had not come to new objects
	}
}
