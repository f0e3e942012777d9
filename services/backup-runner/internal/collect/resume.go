package collect

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// past is what earlier holders of the backup recorded. It does not change while
// units are collected.
type past struct {
	start *checkpoint.Start // nil if nothing was recorded
	units map[string]position
	ended bool // the last log entry is recorded
}

// position is how far a unit has come.
type position struct {
	checkpoint.Range     // the last one
	items            int // of all of them
}

// restore reads what earlier holders recorded, one after the other.
func (r *run) restore(ctx context.Context) error {
	r.past.units = map[string]position{}
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
	r.facts.within(rec.Namespaces)
	r.facts.exist(rec.Seen)
	r.facts.bind(rec.Volumes)
	r.sealed(key, &rec.Part)
	r.Progress.restore(rec.Part.Items, rec.Part.Warnings, rec.Part.Errors)
}

// vanished notes the units that were to be collected and are served no longer.
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
		resource := id
		if end := strings.IndexAny(id, "/#"); end >= 0 {
			resource = id[:end]
		}
		message := "objects of this kind could not be listed, it is no longer served: they are not backed up"
		if at.Last != "" {
			message = fmt.Sprintf("objects of this kind could not be listed beyond %q, it is no longer served: the rest of them is not backed up", at.Last)
		}
		if err := w.fail(joblog.Entry{Message: message, Scoped: true, Namespace: at.Namespace, Resource: resource}); err != nil {
			return err
		}
		w.covered(checkpoint.Range{Unit: id, Resource: resource, Kind: at.Kind, Namespace: at.Namespace, Revision: at.Revision,
			Reason: at.Reason, After: at.Last, Last: at.Last, Done: true})
	}
	return nil
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
