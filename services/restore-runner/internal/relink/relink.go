// Package relink gives restored objects their owners back under the owners' new identities.
//
// An owner that is there when an object is created is written at once; the others are patched in together, when the last
// of them has an outcome. The UID of the old cluster is never written: the garbage collector would delete the object.
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

// Patch is what is left to be written to a restored object.
type Patch struct {
	// Child is the object's node, UID its identity in the cluster.
	Child int32
	UID   types.UID
	// References are all owner references of the object, nil when none came in addition to those it was created with.
	References []any
	// Lost are references that came to nothing since it was created.
	Lost []Lost
}

// Book knows the owners of one restore. Safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	settled map[int32]*Owner // nil: has an outcome and does not exist
	waiting map[int32][]*child
}

// child is an object that was created before some of its owners.
type child struct {
	patch Patch
	place string // namespace
	base  []any  // written at creation
	found []any  // owners that appeared since
	open  []Reference
}

// New returns an empty book.
func New() *Book { return &Book{settled: map[int32]*Owner{}, waiting: map[int32][]*child{}} }

// Known splits the references of an object in namespace into those that can be written now, rewritten to the present
// owners, those whose owners have no outcome yet, and those that are lost.
func (b *Book) Known(namespace string, refs []Reference) (now []any, later []Reference, lost []Lost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range refs {
		owner, settled := b.settled[ref.Node]
		switch value, reason := rewrite(namespace, ref.Value, owner); {
		case !settled:
			later = append(later, ref)
		case reason != "":
			lost = append(lost, Lost{Owner: Name(ref.Value), Reason: reason})
		default:
			now = append(now, value)
		}
	}
	return now, later, lost
}

// Await notes that an object was created with the references now and still lacks those of later. When all their owners
// are settled by now the patch is returned at once, else nil: Settle will return it.
func (b *Book) Await(node int32, uid types.UID, namespace string, now []any, later []Reference) *Patch {
	if len(later) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &child{patch: Patch{Child: node, UID: uid}, place: namespace, base: now}
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
	value, reason := rewrite(c.place, ref.Value, owner)
	if reason != "" {
		c.patch.Lost = append(c.patch.Lost, Lost{Owner: Name(ref.Value), Reason: reason})
		return
	}
	c.found = append(c.found, value)
}

// complete returns the patch once nothing is open, and only once.
func (c *child) complete() *Patch {
	if len(c.open) > 0 || c.patch.References != nil || (c.found == nil && c.patch.Lost == nil) {
		return nil
	}
	out := c.patch
	if len(c.found) > 0 {
		out.References = append(append([]any(nil), c.base...), c.found...)
	}
	c.found, c.patch.Lost = nil, nil
	return &out
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
