// Package relink gives restored objects their owners back under the owners' new identities.
//
// An owner that exists when an object is created, also from before the restore, is written at once;
// the others are patched in together, when the last of them has an outcome. The UID of the old
// cluster is never written: the garbage collector would delete the object.
package relink

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
	// Version is the resourceVersion at which it had the owner references Base, "" if that is
	// unknown.
	Version string
	Base    []any
	// Namespace is where its owners are looked for.
	Namespace string
}

// Patch is what is left to be written to a restored object.
type Patch struct {
	Child
	// Missing are the references to add, none when only Lost came in addition to those it was
	// created with.
	Missing []any
	// Lost are references that came to nothing since it was created.
	Lost []Lost
}

// Due is an object whose owners all have an outcome. Patch returns what is to be written to it.
type Due int32

// Book keeps the owners of one restore. Safe for concurrent use.
type Book struct {
	mu       sync.Mutex
	resolved map[int32]*Owner // nil: has an outcome and does not exist
	waiting  map[int32][]Due
	children []child
	spill    spill
	looks    map[int32]*look // at owners without an outcome
}

// child is an object that waits for owners, 16 bytes: the rest is in a file.
type child struct {
	at   int64 // where in the file it begins; the next one follows
	node int32
	open int32 // references whose owners have no outcome
}

// record is what the file has of a child.
type record struct {
	Child
	Later []Reference
}

// look is a lookup of an owner that may be in the cluster from before.
type look struct {
	done  chan struct{}
	owner *Owner
}

// New returns an empty book that keeps objects which wait in a file in dir; empty is the system's
// directory for temporary files.
func New(dir string) *Book {
	return &Book{resolved: map[int32]*Owner{}, waiting: map[int32][]Due{}, spill: spill{dir: dir}, looks: map[int32]*look{}}
}

// Close releases the file.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spill.close()
}

// Look calls find, once for each owner, unless the owner has an outcome: what find returns, if it
// is not nil, owns objects from now on as if it had one. Look returns when that is known.
func (b *Book) Look(node int32, find func() *Owner) {
	b.mu.Lock()
	l, looked := b.looks[node]
	if _, resolved := b.resolved[node]; resolved {
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
	if owner, resolved := b.resolved[node]; resolved {
		return owner, true
	}
	if l := b.looks[node]; l != nil && l.owner != nil {
		return l.owner, true
	}
	return nil, false
}

// Known splits the references of an object in namespace into those that can be written now,
// rewritten to the present owners, those whose owners have no outcome yet, and those that are lost.
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

// Await notes that an object was created and still lacks the references of later. It is due at once
// when all their owners have an outcome by now; else Resolve will return it.
func (b *Book) Await(of Child, later []Reference) (due Due, now bool, err error) {
	if len(later) == 0 {
		return 0, false, nil
	}
	encoded, err := json.Marshal(record{of, later})
	if err != nil {
		return 0, false, fmt.Errorf("keep what an object waits for: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := child{node: of.Node}
	if c.at, err = b.spill.add(encoded); err != nil {
		return 0, false, fmt.Errorf("keep what an object waits for: %w", err)
	}
	due = Due(len(b.children)) //nolint:gosec // there are fewer nodes
	for _, ref := range later {
		if _, resolved := b.resolved[ref.Node]; !resolved {
			c.open++
			b.waiting[ref.Node] = append(b.waiting[ref.Node], due)
		}
	}
	b.children = append(b.children, c)
	return due, c.open == 0, nil
}

// Resolve notes the outcome of a node that owns others: what it is now, or nil when it does not
// exist. It returns the objects whose last open owner it was.
func (b *Book) Resolve(node int32, owner *Owner) []Due {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resolved[node] = owner
	waited := b.waiting[node]
	out := waited[:0]
	for _, due := range waited {
		if b.children[due].open--; b.children[due].open == 0 {
			out = append(out, due)
		}
	}
	delete(b.waiting, node)
	delete(b.looks, node)
	return out
}

// Patch returns what is left to be written to an object that is due. After an error only its node
// is known.
func (b *Book) Patch(due Due) (Patch, error) {
	b.mu.Lock()
	c, end := b.children[due], b.spill.size
	if int(due)+1 < len(b.children) {
		end = b.children[due+1].at
	}
	b.mu.Unlock()
	encoded, err := b.spill.read(c.at, end)
	r := record{Child: Child{Node: c.node}}
	if err == nil {
		err = utiljson.Unmarshal(encoded, &r)
	}
	p := Patch{Child: r.Child}
	if err != nil {
		p.Node = c.node
		return p, fmt.Errorf("read what the object waited for: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range r.Later {
		value, reason := rewrite(r.Namespace, ref.Value, b.resolved[ref.Node])
		if reason != "" {
			p.Lost = append(p.Lost, Lost{Owner: Name(ref.Value), Reason: reason})
			continue
		}
		p.Missing = append(p.Missing, value)
	}
	return p, nil
}

// rewrite returns the reference with the owner's present identity, or why there can be none. The
// garbage collector reads an owner by all of version, kind, name and UID, in the object's own
// namespace unless it is cluster-scoped.
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
