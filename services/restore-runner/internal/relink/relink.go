// Package relink gives restored objects their owners back under the owners' new identities.
//
// An owner that is there when an object is created, also from before the restore, is written at once; the others are patched in
// together, when the last of them has an outcome. The UID of the old cluster is never written: the garbage collector would delete the object.
package relink

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Owner is an object as it is now.
type Owner struct {
	UID              types.UID
	APIVersion, Kind string
	Namespace, Name  string
}

// Reference is one stored owner reference, decoded, and the node it means.
type Reference struct {
	Node  int32
	Value map[string]any
}

// Lost is a reference that could not be brought back.
type Lost struct {
	// Owner is "Kind name" as stored.
	Owner string
	// Reason is for people.
	Reason string
}

// Child is an object that was created before some of its owners.
type Child struct {
	Node int32
	UID  types.UID
	// Version is the resourceVersion at which it had the owner references Base, "" if that is unknown.
	Version string
	Base    []any
	// Namespace is where its owners are looked for.
	Namespace string
}

// Patch is what is left to be written to a restored object.
type Patch struct {
	Child
	// Missing are the references to add, none when only Lost came in addition to those it was created with.
	Missing []any
	// Lost are references that came to nothing since it was created.
	Lost []Lost
}

// Book knows the owners of one restore. Safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	settled map[int32]*Owner // nil: has an outcome and does not exist
	waiting map[int32][]*child
	looks   map[int32]*look // at owners without an outcome
}

// child is an object that waits for owners.
type child struct {
	Patch
	open []Reference
	done bool
}

// look is a look for an owner that may be in the cluster from before.
type look struct {
	done  chan struct{}
	owner *Owner
}

// New returns an empty book.
func New() *Book {
	return &Book{settled: map[int32]*Owner{}, waiting: map[int32][]*child{}, looks: map[int32]*look{}}
}

// Look calls find, once for each owner, unless the owner has an outcome: what find returns, if it is not nil, owns objects from
// now on as if it had one. Look returns when that is known.
func (b *Book) Look(node int32, find func() *Owner) {
	b.mu.Lock()
	l, looked := b.looks[node]
	if _, settled := b.settled[node]; settled {
		b.mu.Unlock()
		return
	}
	if !looked {
		l = &look{done: make(chan struct{})}
		b.looks[node] = l
	}
	b.mu.Unlock()
	if looked {
		<-l.done
		return
	}
	defer close(l.done)
	owner := find()
	b.mu.Lock()
	defer b.mu.Unlock()
	l.owner = owner
}

// known returns an owner that has an outcome, or was found.
func (b *Book) known(node int32) (owner *Owner, known bool) {
	if owner, settled := b.settled[node]; settled {
		return owner, true
	}
	if l := b.looks[node]; l != nil && l.owner != nil {
		return l.owner, true
	}
	return nil, false
}

// Known splits the references of an object in namespace into those that can be written now, rewritten to the present
// owners, those whose owners have no outcome yet, and those that are lost.
func (b *Book) Known(namespace string, refs []Reference) (now []any, later []Reference, lost []Lost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range refs {
		owner, known := b.known(ref.Node)
		switch value, reason := rewrite(namespace, ref.Value, owner); {
		case !known:
			later = append(later, ref)
		case reason != "":
			lost = append(lost, Lost{Owner: Name(ref.Value), Reason: reason})
		default:
			now = append(now, value)
		}
	}
	return now, later, lost
}

// Await notes that an object was created and still lacks the references of later. When all their owners are settled by now
// the patch is returned at once, else nil: Settle will return it.
func (b *Book) Await(of Child, later []Reference) *Patch {
	if len(later) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &child{Patch: Patch{Child: of}}
	for _, ref := range later {
		if owner, settled := b.settled[ref.Node]; settled {
			c.resolve(ref, owner)
			continue
		}
		c.open = append(c.open, ref)
		b.waiting[ref.Node] = append(b.waiting[ref.Node], c)
	}
	return c.complete()
}

// Settle notes the outcome of a node that owns others: what it is now, or nil when it does not exist. It returns the
// objects whose last open owner it was.
func (b *Book) Settle(node int32, owner *Owner) []Patch {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled[node] = owner
	var out []Patch
	for _, c := range b.waiting[node] {
		for _, ref := range c.take(node) {
			c.resolve(ref, owner)
		}
		if p := c.complete(); p != nil {
			out = append(out, *p)
		}
	}
	delete(b.waiting, node)
	delete(b.looks, node)
	return out
}

// take removes the open references to a node and returns them; none when an earlier entry for the same node had them.
func (c *child) take(node int32) []Reference {
	var taken, open []Reference
	for _, ref := range c.open {
		if ref.Node == node {
			taken = append(taken, ref)
		} else {
			open = append(open, ref)
		}
	}
	c.open = open
	return taken
}

func (c *child) resolve(ref Reference, owner *Owner) {
	value, reason := rewrite(c.Namespace, ref.Value, owner)
	if reason != "" {
		c.Lost = append(c.Lost, Lost{Owner: Name(ref.Value), Reason: reason})
		return
	}
	c.Missing = append(c.Missing, value)
}

// complete returns the patch once nothing is open, and only once.
func (c *child) complete() *Patch {
	if len(c.open) > 0 || c.done {
		return nil
	}
	c.done = true
	return &c.Patch
}

// rewrite returns the reference with the owner's present identity, or why there can be none. The garbage collector looks
// an owner up by all of version, kind, name and UID, in the object's own namespace unless it is cluster-scoped.
func rewrite(namespace string, stored map[string]any, owner *Owner) (value map[string]any, reason string) {
	switch {
	case owner == nil || owner.UID == "":
		return nil, "the owner was not restored"
	case owner.Namespace != "" && owner.Namespace != namespace:
		return nil, "the owner is in another namespace"
	}
	value = make(map[string]any, len(stored))
	for k, v := range stored {
		value[k] = v
	}
	value["apiVersion"], value["kind"], value["name"], value["uid"] = owner.APIVersion, owner.Kind, owner.Name, string(owner.UID)
	return value, ""
}

// Name returns "Kind name" of a stored reference.
func Name(ref map[string]any) string {
	kind, hasKind := ref["kind"].(string)
	name, hasName := ref["name"].(string)
	if !hasKind || !hasName {
		return "of an unreadable reference"
	}
	return kind + " " + name
}
