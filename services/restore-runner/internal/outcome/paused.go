package outcome

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Pause records that an object is about to be created paused. It has to be durable (Sync) before
// that: the cluster does not keep the former value of the mark.
func (r *Recorder) Pause(p *Paused) {
	e := r.Begin(General)
	e.record.Paused = p
	e.Commit()
}

// Resumed notes that the mark of an object is as in the backup again, or that the object is not this
// restore's any more.
func (e *Entry) Resumed(t apply.Target) { e.record.Paused = &Paused{Target: t, Resumed: true} }

// NotResumed notes that the mark of an object could not be written, which the entry has an error
// about: another attempt is made without one.
func (e *Entry) NotResumed(p *Paused) {
	e.record.Paused = &Paused{Target: p.Target, Back: p.Back, Failed: true}
}

// Paused returns the objects that are paused, or may be, by this holder of the restore or an
// earlier one, in the order of their names.
func (r *Recorder) Paused() []*Paused {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.paused), func(a, b *Paused) int { return strings.Compare(a.Name(), b.Name()) })
}

// Name is how messages name the object.
func (p *Paused) Name() string {
	return p.Target.GVR.GroupResource().String() + " " + path.Join(p.Target.Namespace, p.Target.Name)
}

// LoadUnfinished adds what an earlier holder left paused and what it began, of a file of records
// that is not replayed.
func (r *Recorder) LoadUnfinished(data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return EachRecord(data, func(rec *Record) {
		setPaused(&r.paused, rec)
		r.keepOperations(General, rec)
	})
}

// setPaused makes a record count.
func setPaused(paused *map[apply.Target]*Paused, rec *Record) {
	switch p := rec.Paused; {
	case p == nil:
	case p.Resumed:
		delete(*paused, p.Target)
	default:
		putLazy(paused, p.Target, p)
	}
}
