package outcome

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Wait is what an object, or the restore, waits for.
type Wait struct {
	// Node is the object that waits. With General it is Object, which may be "".
	Node   int32
	Object string
	Reason string
	Since  time.Time
	// Others counts those that wait for the same.
	Others int
}

// Name names what waits.
func (w *Wait) Name() string {
	if w.Others == 0 {
		return w.Object
	}
	return fmt.Sprintf("%s and %d more objects", w.Object, w.Others)
}

// waitSources are asked what is waited for. The Recorder's lock guards them, and is not held while they
// are asked.
type waitSources struct {
	next    int
	sources map[int]func() []Wait
}

// ShowWaits has Waits ask source too, from any goroutine, until hide is called.
func (r *Recorder) ShowWaits(source func() []Wait) (hide func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.next++
	id := r.waits.next
	putLazy(&r.waits.sources, id, source)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waits.sources, id)
	}
}

// Waits returns what has been waited for since a time or longer, the longest wait first. Nothing is
// recorded of it.
func (r *Recorder) Waits(since time.Time) []Wait {
	r.mu.Lock()
	sources := make([]func() []Wait, 0, len(r.waits.sources))
	for _, source := range r.waits.sources {
		sources = append(sources, source)
	}
	names := r.plan
	r.mu.Unlock()
	var all []Wait
	for _, source := range sources {
		for _, w := range source() {
			if w.Since.After(since) {
				continue
			}
			if w.Node != General {
				w.Object = names.Kind(w.Node).String() + " " + nameOf(names, w.Node)
			}
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b Wait) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object, b.Object)) })
	return all
}
