package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	start *checkpoint.Start // nil if nothing was recorded
	units map[string]position
	ended bool // the last log entry is recorded

	// What earlier holders left to actions, and made of it.
	held    []checkpoint.Held
	leftOut []checkpoint.Object
	parts   []checkpoint.Part
	aside   []checkpoint.Object
	// joined are the objects that were processed aside and whose block is done.
	joined map[known.Key]struct{}
}

// position is how far a unit has come.
type position struct {
	checkpoint.Range     // the last one
	items            int // of all of them
}

// restore reads what earlier holders recorded, one after the other.
func (r *run) restore(ctx context.Context) error {
	r.past.units, r.past.joined = map[string]position{}, map[known.Key]struct{}{}
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
		last := rec.Ranges[i]
		r.past.units[last.Unit] = position{Range: last, items: r.past.units[last.Unit].items + last.Items}
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
	r.past.leftOut = append(r.past.leftOut, rec.LeftOut...)
	r.past.aside = append(r.past.aside, rec.Aside...)
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
func (w *worker) vanished(planned []unit) error {
	served := make(map[string]struct{}, len(planned))
	for i := range planned {
		served[planned[i].id()] = struct{}{}
	}
	for _, id := range w.run.past.start.Units {
		at := w.run.past.units[id]
		if _, ok := served[id]; ok || at.Done {
			continue
		}
		kind := resourceOf(id)
		reason := "it is no longer served"
		if group := schema.ParseGroupResource(kind).Group; silent(w.run.Catalog, group) {
			reason = fmt.Sprintf("API group %q does not answer", group)
		}
		message := fmt.Sprintf("objects of this kind could not be listed, %s: they are not backed up", reason)
		if at.Last != "" {
			message = fmt.Sprintf("objects of this kind could not be listed beyond %q, %s: the rest of them is not backed up", at.Last, reason)
		}
		if err := w.fail(joblog.Entry{Message: message, Scoped: true, Namespace: at.Namespace, Resource: kind}); err != nil {
			return err
		}
		w.covered(checkpoint.Range{Unit: id, Resource: kind, Kind: at.Kind, Namespace: at.Namespace, Revision: at.Revision,
			Reason: at.Reason, After: at.Last, Last: at.Last, Done: true})
	}
	return nil
}

// resourceOf returns the resource that the unit of that id lists.
func resourceOf(id string) string {
	if end := strings.IndexAny(id, "/#?"); end >= 0 {
		return id[:end]
	}
	return id
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

// missing reports whether units are left whose group does not answer.
func (r *run) missing() bool {
	return slices.ContainsFunc(r.past.start.Units, func(id string) bool {
		gr := schema.ParseGroupResource(resourceOf(id))
		_, served := r.Catalog.Lookup(gr)
		return !served && !r.past.units[id].Done && silent(r.Catalog, gr.Group)
	})
}

// remaining returns the units that the first holder planned and that are not done.
func (r *run) remaining(planned []unit) []unit {
	var only map[string]struct{}
	if r.past.start != nil {
		only = make(map[string]struct{}, len(r.past.start.Units))
		for _, id := range r.past.start.Units {
			only[id] = struct{}{}
		}
	}
	var out []unit
	for _, u := range planned {
		if _, ok := only[u.id()]; ok || only == nil {
			out = append(out, u)
		}
	}
	return out
}

// resume takes up a unit where an earlier holder left it.
func (s *sink) resume(at position) {
	s.revision, s.reason, s.after, s.items, s.begun = at.Revision, at.Reason, at.Last, at.items, true
	if at.Last == at.After || at.Continue == "" {
		s.skipTo = at.Last // its list had not come to new objects
	}
}
