package flight

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

// LostOwner is a reference that could not be brought back.
type LostOwner struct {
	Owner int32
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

	later []laterReference
	open  int // references whose owners have no outcome
}

// laterReference is what is kept of a stored reference: the owner has the other fields.
type laterReference struct {
	owner             int32
	controller, block optionalBool
}

// optionalBool is a boolean field that may be absent.
type optionalBool uint8

const (
	absent optionalBool = iota
	setFalse
	setTrue
)

func optionalBoolOf(value any) optionalBool {
	switch value {
	case true:
		return setTrue
	case false:
		return setFalse
	}
	return absent
}

// storedFields returns the fields that do not come from the owner.
func (r *laterReference) storedFields() map[string]any {
	fields := map[string]any{}
	if r.controller != absent {
		fields["controller"] = r.controller == setTrue
	}
	if r.block != absent {
		fields["blockOwnerDeletion"] = r.block == setTrue
	}
	return fields
}

// Book gives the objects of one restore their owners back under the owners' new identities. Safe for
// concurrent use.
//
// An owner that exists when an object is created, also from before the restore, is written at once;
// the others are patched in together, when the last of them has an outcome. The UID of the old
// cluster is never written: the garbage collector would delete the object.
type Book struct {
	mu       sync.Mutex
	resolved map[int32]*Owner // nil: has an outcome and does not exist
	waiting  map[int32][]*Child
	looks    map[int32]*ownerLookup // at owners without an outcome
}

// ownerLookup is a lookup of an owner that may be in the cluster from before.
type ownerLookup struct {
	done  chan struct{}
	owner *Owner
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{resolved: map[int32]*Owner{}, waiting: map[int32][]*Child{}, looks: map[int32]*ownerLookup{}}
}

// LookUpOwner calls find, once for each owner, unless the owner has an outcome: what find returns, if it
// is not nil, owns objects from now on as if it had one. Look returns when that is known.
func (b *Book) LookUpOwner(node int32, find func() *Owner) {
	b.mu.Lock()
	l, looked := b.looks[node]
	if _, resolved := b.resolved[node]; resolved {
		b.mu.Unlock()
		return
	}
	if !looked {
		l = &ownerLookup{done: make(chan struct{})}
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

// knownOwner returns an owner that has an outcome, or was found.
func (b *Book) knownOwner(node int32) (owner *Owner, known bool) {
	if owner, resolved := b.resolved[node]; resolved {
		return owner, true
	}
	if l := b.looks[node]; l != nil && l.owner != nil {
		return l.owner, true
	}
	return nil, false
}

// SplitReferences splits the references of an object in namespace into those that can be written now,
// rewritten to the present owners, those whose owners have no outcome yet, and those that are lost.
func (b *Book) SplitReferences(namespace string, refs []Reference) (now []any, later []Reference, lost []LostOwner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range refs {
		owner, known := b.knownOwner(ref.Node)
		switch value, reason := rewriteReference(namespace, ref.Value, owner); {
		case !known:
			later = append(later, ref)
		case reason != "":
			lost = append(lost, LostOwner{Owner: ref.Node, Reason: reason})
		default:
			now = append(now, value)
		}
	}
	return now, later, lost
}

// Await notes that an object was created and still lacks the references of later. It reports whether
// all their owners have an outcome by now; else Resolve will return the object.
func (b *Book) Await(child *Child, later []Reference) (due bool) {
	if len(later) == 0 {
		return false
	}
	child.later = make([]laterReference, len(later))
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, ref := range later {
		child.later[i] = laterReference{ref.Node, optionalBoolOf(ref.Value["controller"]), optionalBoolOf(ref.Value["blockOwnerDeletion"])}
		if _, resolved := b.resolved[ref.Node]; !resolved {
			child.open++
			b.waiting[ref.Node] = append(b.waiting[ref.Node], child)
		}
	}
	return child.open == 0
}

// Resolve notes the outcome of a node that owns others: what it is now, or nil when it does not
// exist. It returns the objects whose last open owner it was.
func (b *Book) Resolve(node int32, owner *Owner) []*Child {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resolved[node] = owner
	waited := b.waiting[node]
	due := waited[:0]
	for _, child := range waited {
		if child.open--; child.open == 0 {
			due = append(due, child)
		}
	}
	delete(b.waiting, node)
	delete(b.looks, node)
	return due
}

// Missing returns the references to add to an object whose owners all have an outcome, and those
// that came to nothing since it was created.
func (b *Book) Missing(child *Child) (missing []any, lost []LostOwner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range child.later {
		ref := &child.later[i]
		value, reason := rewriteReference(child.Namespace, ref.storedFields(), b.resolved[ref.owner])
		if reason != "" {
			lost = append(lost, LostOwner{Owner: ref.owner, Reason: reason})
			continue
		}
		missing = append(missing, value)
	}
	return missing, lost
}

// rewriteReference returns the reference with the owner's present identity, or why there can be none. The
// garbage collector reads an owner by all of version, kind, name and UID, in the object's own
// namespace unless it is cluster-scoped.
func rewriteReference(namespace string, stored map[string]any, owner *Owner) (value map[string]any, reason string) {
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

// ReferenceName returns "Kind name" of a stored reference.
func ReferenceName(ref map[string]any) string {
	kind, hasKind := ref["kind"].(string)
	name, hasName := ref["name"].(string)
	if !hasKind || !hasName {
		return "of an unreadable reference"
	}
	return kind + " " + name
}
