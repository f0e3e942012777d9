package kubetest

import (
	"fmt"
	"slices"
	"strings"
)

// objectVersion is an object from a revision on; nil means that it was deleted then.
type objectVersion struct {
	revision int64
	object   map[string]any
}

// objectHistory is the history of what was stored under one name.
type objectHistory struct {
	target
	versions []objectVersion // in order of revisions
}

// objectAt returns the object at a revision; nil when there was none.
func (r *objectHistory) objectAt(revision int64) map[string]any {
	for _, v := range slices.Backward(r.versions) {
		if v.revision <= revision {
			return v.object
		}
	}
	return nil
}

// currentObject returns the object as it is.
func (r *objectHistory) currentObject() map[string]any {
	if r == nil {
		return nil
	}
	return r.versions[len(r.versions)-1].object
}

// collection is all objects of a kind, in order of their keys as etcd has it.
type collection struct{ records []*objectHistory }

func (c *collection) findKey(key string) (int, bool) {
	return slices.BinarySearchFunc(c.records, key, func(r *objectHistory, key string) int { return strings.Compare(r.storageKey(), key) })
}

// objectStorage is the objects of a server and their history. The Server's lock guards it.
type objectStorage struct {
	stored    map[string]*collection // by resource and group
	revision  int64
	compacted int64
}

// nextRevision is the revision of a write.
func (s *objectStorage) nextRevision() int64 {
	s.revision++
	return s.revision
}

// recordOf returns the history of an object; nil when it never was.
func (s *objectStorage) recordOf(t target) *objectHistory {
	c := s.stored[t.groupResource()]
	if c == nil {
		return nil
	}
	if i, found := c.findKey(t.storageKey()); found {
		return c.records[i]
	}
	return nil
}

// addVersion adds a version of an object.
func (s *objectStorage) addVersion(t target, revision int64, object map[string]any) {
	c := s.stored[t.groupResource()]
	if c == nil {
		c = &collection{}
		s.stored[t.groupResource()] = c
	}
	i, found := c.findKey(t.storageKey())
	if !found {
		c.records = slices.Insert(c.records, i, &objectHistory{target: t})
	}
	c.records[i].versions = append(c.records[i].versions, objectVersion{revision, object})
}

// eachObject calls fn for every object that is there.
func (s *objectStorage) eachObject(fn func(r *objectHistory, object map[string]any)) {
	for _, c := range s.stored {
		for _, r := range c.records {
			if object := r.currentObject(); object != nil {
				fn(r, object)
			}
		}
	}
}

// setIdentity gives an object that is new its identity, unless it has one.
func setIdentity(object map[string]any, revision int64) {
	if meta := Meta(object); meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("new-%d", revision)
		meta["resourceVersion"] = fmt.Sprint(revision)
		meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	}
}

// changeObject stores a new version of an object that is there, which replaces the one before.
func (s *objectStorage) changeObject(t target, object map[string]any) {
	revision := s.nextRevision()
	Meta(object)["resourceVersion"] = fmt.Sprint(revision)
	s.addVersion(t, revision, object)
}

// removeObject deletes an object that is there.
func (s *objectStorage) removeObject(t target) { s.addVersion(t, s.nextRevision(), nil) }

// recordsOf are the histories of a kind's objects.
func (s *objectStorage) recordsOf(k *Kind) []*objectHistory {
	if c := s.stored[k.groupResource()]; c != nil {
		return c.records
	}
	return nil
}
