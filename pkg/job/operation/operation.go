// Package operation keeps the asynchronous operations of a job in its bucket: work that an action
// began for an item, and that continues after the call.
//
// Everything is an immutable record that is created once. The list of what was begun is sealed by
// the holder of the job, once no action can begin another operation; a job without a sealed list
// has operations that are not known, and never none. What happens to an operation afterwards is an
// Event in a record with a number of its own, see Log: of two processes that poll the same job one
// writes the next number, and the other reads what it wrote first.
package operation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Resource names an item of a job by its resource.
type Resource struct {
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// GroupResource returns "pods" or "datauploads.velero.io".
func (r *Resource) GroupResource() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// String returns "datauploads.velero.io namespace/name".
func (r *Resource) String() string {
	if r.Namespace == "" {
		return r.GroupResource() + " " + r.Name
	}
	return r.GroupResource() + " " + r.Namespace + "/" + r.Name
}

// Home is the process that runs an operation and whose end is the operation's end.
type Home struct {
	// Instance is the instance of the runner, as its Lease names it.
	Instance string `json:"instance"`
	// Process is the start ID of the plugin's process; it differs for every start.
	Process string `json:"process"`
}

// Operation is what an action began.
type Operation struct {
	// Action is the registered name of the action, Kind what it is registered as.
	Action string `json:"action"`
	Kind   string `json:"kind,omitempty"`
	// ID is the action's identifier of the operation, unique within the action.
	ID string `json:"id"`
	// Item is what it was begun for.
	Item Resource `json:"item"`
	// Key is the idempotency key of the call, see Key; empty for an action that has none.
	Key string `json:"key,omitempty"`
	// Home is nil for an operation outside of the plugin's process.
	Home *Home `json:"home,omitempty"`
	// PostOperation are the items to be stored again once the operation has ended.
	PostOperation []Resource `json:"postOperation,omitempty"`
	// Created is when the call was answered.
	Created time.Time `json:"created"`
}

// Key is the idempotency key of the call of an action about an item: a process that repeats the
// call arrives at the same one, and no other call does.
func Key(jobUID, action string, item *Resource) string {
	h := sha256.Sum256([]byte(strings.Join([]string{jobUID, action, item.Group, item.Resource, item.Namespace, item.Name}, "\x00")))
	return hex.EncodeToString(h[:16])
}

// Unique returns recorded operations, each once, oldest first: records may have the same one twice.
func Unique(recorded []Operation) []Operation {
	return UniqueBy(recorded, func(o *Operation) *Operation { return o })
}

// UniqueBy is Unique for what is more than an operation.
func UniqueBy[T any](recorded []T, operationOf func(*T) *Operation) []T {
	out := slices.Clone(recorded)
	slices.SortStableFunc(out, func(x, y T) int {
		a, b := operationOf(&x), operationOf(&y)
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Action, b.Action), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Item.String(), b.Item.String()))
	})
	type name struct {
		action, id string
		item       Resource
	}
	seen := map[name]struct{}{}
	return slices.DeleteFunc(out, func(t T) bool {
		o := operationOf(&t)
		key := name{o.Action, o.ID, o.Item}
		_, twice := seen[key]
		seen[key] = struct{}{}
		return twice
	})
}

// Phase is where an operation is, named as in Velero's file of operations (1.18).
type Phase string

// The phases of an operation.
const (
	New        Phase = "New" // its progress was not read yet
	InProgress Phase = "InProgress"
	Completed  Phase = "Completed"
	Failed     Phase = "Failed"
)

// Ended reports that nothing more happens to the operation.
func (p Phase) Ended() bool { return p == Completed || p == Failed }

// Progress is how far an operation has come.
type Progress struct {
	// Completed and Total are in Units; a Total of 0 means that it is unknown.
	Completed   int64  `json:"completed,omitempty"`
	Total       int64  `json:"total,omitempty"`
	Units       string `json:"units,omitempty"`
	Description string `json:"description,omitempty"`
	// Started and Updated are the action's own times; nil means that it gave none.
	Started *time.Time `json:"started,omitempty"`
	Updated *time.Time `json:"updated,omitempty"`
}
