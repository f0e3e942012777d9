package collect

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/rawjson"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// heldFiles are the files of held objects of this process, until its run is over.
type heldFiles struct {
	mu    sync.Mutex
	paths []string
}

func (f *heldFiles) add(path string) (number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths = append(f.paths, path)
	return uint32(len(f.paths) - 1) //nolint:gosec // far fewer files
}

func (f *heldFiles) path(number uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paths[number]
}

// drop forgets a file that is gone.
func (f *heldFiles) drop(number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[number] = ""
}

// all returns the files by their numbers, "" for those that are gone.
func (f *heldFiles) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.paths)
}

// release removes the files. It is best effort: the job's directory goes at its end.
func (r *run) release() {
	for _, path := range r.held.paths {
		_ = os.Remove(path)
	}
}

// heldAt is an object that the page holds.
type heldAt struct {
	key known.Key
	at  known.Place
}

// route takes the object in s.meta, or holds it for its actions.
func (s *sink) route(item jsonlist.Item) error {
	key := known.KeyOf(s.u.res.Kind.GroupKind(), s.meta.Namespace, s.meta.Name)
	if s.u.role != plain && s.w.run.bound.register.Fate(key).Met() {
		return nil // an action asked for it before
	}
	if s.wants.touch(&s.meta, item.Raw) {
		return s.hold(key, item)
	}
	items := s.page.items
	if err := s.take(item); err != nil || s.page.items == items {
		return err
	}
	s.page.stored = append(s.page.stored, key)
	return nil
}

// keptBytes bounds scratch memory that outlives one large object.
const keptBytes = 1 << 20

// hold keeps the object in s.meta until its actions run.
func (s *sink) hold(key known.Key, item jsonlist.Item) error {
	w, kind := s.w, s.u.res.Kind
	if w.hold == nil {
		file, err := held.Create(w.run.Dir)
		if err != nil {
			return err
		}
		w.hold, w.holdFile, w.holds = file, w.run.held.add(file.Path()), w.holds+1
	}
	if s.page.holdMark == nil {
		mark := w.hold.Mark()
		s.page.holdMark = &mark
	}
	it := held.Item{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Resource: s.u.res.Name,
		Namespace: s.meta.Namespace, Name: s.meta.Name, Raw: item.Raw}
	if s.revision != s.main {
		it.Cut = s.revision
	}
	if !item.HasTypeMeta {
		w.typed = appendTyped(w.typed[:0], &it)
		it.Raw = w.typed
	}
	offset, err := w.hold.Add(&it)
	if err != nil {
		return fmt.Errorf("hold %s: %w", objectKey(it.Namespace, it.Name), err)
	}
	if cap(w.typed) > keptBytes {
		w.typed = nil
	}
	s.page.held = append(s.page.held, heldAt{key, known.Place{File: w.holdFile, Offset: uint32(offset)}}) //nolint:gosec // parts are smaller
	s.page.items++
	if it.Namespace != "" {
		s.inNamespace(it.Namespace)
	}
	return nil
}

// appendTyped appends the object with apiVersion and kind in front.
func appendTyped(dst []byte, it *held.Item) []byte {
	version := it.Version
	if it.Group != "" {
		version = it.Group + "/" + it.Version
	}
	dst = append(dst, `{"apiVersion":`...)
	dst = rawjson.AppendQuoted(dst, version)
	dst = append(dst, `,"kind":`...)
	dst = rawjson.AppendQuoted(dst, it.Kind)
	if len(it.Raw) > len(`{}`) {
		dst = append(dst, ',')
	}
	return append(dst, it.Raw[1:]...)
}

// register notes what became of the objects of a committed page.
func (s *sink) register(done *page) {
	register := s.w.run.bound.register
	if register == nil {
		return
	}
	register.Settle(known.Stored, done.stored...)
	for _, h := range done.held {
		register.Hold(h.key, h.at)
	}
	s.w.run.Progress.hold(len(done.held))
}
