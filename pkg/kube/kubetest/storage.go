package kubetest

import (
	"fmt"
	"slices"
	"strings"
)

// version is an object from a revision on; nil means that it was deleted then.
type version struct {
	revision int64
	object   map[string]any
}

// record is the history of what was stored under one name.
type record struct {
	target
	versions []version // in order of revisions
}

// at returns the object at a revision; nil when there was none.
func (r *record) at(revision int64) map[string]any {
	for _, v := range slices.Backward(r.versions) {
		if v.revision <= revision {
			return v.object
		}
	}
	return nil
}

// now returns the object as it is.
func (r *record) now() map[string]any {
	if r == nil {
		return nil
	}
	return r.versions[len(r.versions)-1].object
}

// collection is all objects of a kind, in order of their keys as etcd has it.
type collection struct{ records []*record }

func (c *collection) find(key string) (int, bool) {
	return slices.BinarySearchFunc(c.records, key, func(r *record, key string) int { return strings.Compare(r.key(), key) })
}

// storage is the objects of a server and their history. The Server's lock guards it.
type storage struct {
	stored    map[string]*collection // by resource and group
	revision  int64
	compacted int64
}

// next is the revision of a write.
func (s *storage) next() int64 {
	s.revision++
	return s.revision
}

// record returns the history of an object; nil when it never was.
func (s *storage) record(t target) *record {
	c := s.stored[t.groupResource()]
	if c == nil {
		return nil
	}
	if i, found := c.find(t.key()); found {
		return c.records[i]
	}
	return nil
}

// add adds a version of an object.
func (s *storage) add(t target, revision int64, object map[string]any) {
	c := s.stored[t.groupResource()]
	if c == nil {
		c = &collection{}
		s.stored[t.groupResource()] = c
	}
	i, found := c.find(t.key())
	if !found {
		c.records = slices.Insert(c.records, i, &record{target: t})
	}
	c.records[i].versions = append(c.records[i].versions, version{revision, object})
}

// each calls fn for every object that is there.
func (s *storage) each(fn func(r *record, object map[string]any)) {
	for _, c := range s.stored {
		for _, r := range c.records {
			if object := r.now(); object != nil {
				fn(r, object)
			}
		}
	}
}

// identify gives an object that is new its identity, unless it has one.
func identify(object map[string]any, revision int64) {
	if meta := Meta(object); meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("new-%d", revision)
		meta["resourceVersion"] = fmt.Sprint(revision)
		meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	}
}

// change stores a new version of an object that is there, which replaces the one before.
func (s *storage) change(t target, object map[string]any) {
	revision := s.next()
	Meta(object)["resourceVersion"] = fmt.Sprint(revision)
	s.add(t, revision, object)
}

// remove deletes an object that is there.
func (s *storage) remove(t target) { s.add(t, s.next(), nil) }

// records are the histories of a kind's objects.
func (s *storage) records(k *Kind) []*record {
	if c := s.stored[k.groupResource()]; c != nil {
		return c.records
	}
	return nil
}
