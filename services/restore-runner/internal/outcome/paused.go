package outcome

import (
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Pause records that an object is about to be created paused. It has to be durable (Sync) before:
// nothing in the cluster says how its mark was.
func (r *Recorder) Pause(p *Paused) {
	e := r.Begin(General)
	e.record.Paused = p
	e.Commit()
}

// Resumed notes that the mark of an object is as in the backup again, or that nothing can be done
// about it any more.
func (e *Entry) Resumed(t apply.Target) { e.record.Paused = &Paused{Target: t, Resumed: true} }

// Paused returns the objects that are paused, or may be, by this holder of the restore or an
// earlier one.
func (r *Recorder) Paused() []*Paused {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.paused))
}

// RecallPaused adds what an earlier holder left paused, of a file of records that is not replayed.
func (r *Recorder) RecallPaused(data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return each(data, r.pause)
}

// pause makes a record count; the caller holds the lock.
func (r *Recorder) pause(rec *Record) {
	switch p := rec.Paused; {
	case p == nil:
	case p.Resumed:
		delete(r.paused, p.Target)
	default:
		put(&r.paused, p.Target, p)
	}
}
