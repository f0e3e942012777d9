package collect

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// spooledObject is an object that the page put into the item spool.
type spooledObject struct {
	key itemset.Key
	at  itemset.Place
}

// routeItem takes the object in s.meta, or spools it for its actions.
func (s *unitSink) routeItem(item jsonlist.Item) error {
	key := itemset.KeyOf(s.u.Res.Kind.GroupKind(), s.meta.Namespace, s.meta.Name)
	if s.u.Role != plan.Plain && s.w.cfg.Items.Result(key).IsKnown() {
		return nil // an action asked for it before
	}
	if !plan.IsExtra(s.w.cfg.Filter, s.gr, &s.meta) && s.wants.Touch(&s.meta, item.Raw) {
		return s.spoolItem(key, item)
	}
	items := s.page.items
	if err := s.takeItem(item); err != nil || s.page.items == items {
		return err
	}
	s.page.stored = append(s.page.stored, key)
	return nil
}

// keptBytes bounds scratch memory that outlives one large object.
const keptBytes = 1 << 20

// spoolItem keeps the object in s.meta until its actions run.
func (s *unitSink) spoolItem(key itemset.Key, item jsonlist.Item) error {
	w, kind := s.w, s.u.Res.Kind
	if err := s.touchSpool(); err != nil {
		return err
	}
	it := itemset.SpooledItem{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Resource: s.u.Res.Name,
		Namespace: s.meta.Namespace, Name: s.meta.Name, Raw: item.Raw}
	if s.revision != s.main {
		it.Cut = s.revision
	}
	if !item.HasTypeMeta {
		w.typed = itemset.AppendTyped(w.typed[:0], &it)
		it.Raw = w.typed
	}
	offset, err := s.page.spool.Add(&it)
	if err != nil {
		return fmt.Errorf("spool %s: %w", partwriter.ObjectKey(it.Namespace, it.Name), err)
	}
	if cap(w.typed) > keptBytes {
		w.typed = nil
	}
	s.page.spooled = append(s.page.spooled, spooledObject{key, itemset.Place{File: s.page.spoolFile, Offset: uint32(offset)}}) //nolint:gosec // parts are smaller
	s.page.items++
	if it.Namespace != "" {
		s.inNamespace(it.Namespace)
	}
	return nil
}

// touchSpool keeps the position of the item spool before this page.
func (s *unitSink) touchSpool() error {
	if s.page.spool != nil {
		return nil
	}
	open, number, err := s.w.out.Spool()
	if err != nil {
		return err
	}
	s.page.spool, s.page.spoolFile, s.page.spoolMark = open, number, open.Mark()
	return nil
}

// registerPage notes what became of the objects of a committed page.
func (s *unitSink) registerPage(done *pendingPage) {
	items := s.w.cfg.Items
	if items == nil {
		return
	}
	items.SetResult(itemset.Stored, done.stored...)
	for _, o := range done.spooled {
		items.Hold(o.key, o.at)
	}
	s.w.cfg.Progress.Hold(len(done.spooled))
}
