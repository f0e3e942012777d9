// Package checkpoint keeps the durable progress of a backup: immutable records in the bucket, one
// for each sealed part, that is never edited.
//
// The next holder has nothing but the records of the former one: a record holds everything that
// later steps need of its part beside the part itself.
package checkpoint

import (
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// recordVersion is the format version of records; a record of any other is an error.
const recordVersion = 2

// Record has what one sealed part holds.
type Record struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Epoch         int64  `json:"epoch"`
	Seq           int64  `json:"seq"`
	// Start is in the first record: what the first holder decided for all.
	Start *Start `json:"start,omitempty"`
	// PostOperation is set in the records of what is stored again once the operations of the backup
	// have ended. None of them is in a composition.
	PostOperation *PostOperation `json:"postOperation,omitempty"`
	// Part is the part, uploaded before the record. Without a SidecarKey there is none: the ranges
	// held nothing to store.
	Part Part `json:"part"`
	// Spool is the item spool of those objects of the ranges that wait for their actions ("held" in
	// the file); nil if none does.
	Spool *Spool `json:"held,omitempty"`
	// LeftOut are objects that an action kept out of the backup.
	LeftOut []Object `json:"leftOut,omitempty"`
	// Detached are objects of the part, or left out, that were processed out of their item block
	// ("aside" in the file), and Joined those whose block is in the part. Of an object that is among the former and in no
	// record's Joined, what belongs to its block is still to be asked.
	Detached []Object `json:"aside,omitempty"`
	Joined   []Object `json:"joined,omitempty"`
	// Resources are the resources of objects in the part that no range accounts for, sorted.
	Resources []string `json:"resources,omitempty"`
	// Intents are calls that may begin an operation. They are made once this record is durable.
	Intents []Call `json:"intents,omitempty"`
	// Outcomes are how calls of earlier intents ended.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Hooked are Pods whose hooks begin, Hooks are hooks that run, once this record is durable.
	Hooked []HookedPod  `json:"hooked,omitempty"`
	Hooks  []HookIntent `json:"hooks,omitempty"`
	// HookOutcomes are how hooks of earlier records ended.
	HookOutcomes []HookOutcome `json:"hookOutcomes,omitempty"`
	// HooksEnded are Pods whose hooks have all ended.
	HooksEnded []HooksEnded `json:"hooksEnded,omitempty"`
	// Ranges are the key ranges whose selected objects are in the part.
	Ranges []Range `json:"ranges,omitempty"`
	// Revisions are the common revisions taken so far, oldest first.
	Revisions []string `json:"revisions,omitempty"`
	// Namespaces are those of the objects in the part, sorted.
	Namespaces []string `json:"namespaces,omitempty"`
	// Seen are namespaces the user named that the ranges showed to exist.
	Seen []string `json:"seen,omitempty"`
	// Volumes are the volumes of the claims in the part, and what became of pending ones of earlier
	// records.
	Volumes []VolumeInfo `json:"volumes,omitempty"`
	// Intended are snapshots that are taken once this record is durable.
	Intended []nativesnapshot.Snapshot `json:"intendedSnapshots,omitempty"`
	// Snapshots are how snapshots of earlier records came out.
	Snapshots []nativesnapshot.Snapshot `json:"snapshots,omitempty"`
	// Ended is true when the part holds the last log entry of the collection.
	Ended bool `json:"ended,omitempty"`
}

// maxDecoded bounds what a record takes in memory, in bytes.
const maxDecoded = 128 << 20

// Start is what every holder of a backup must see alike.
type Start struct {
	// LiveNamespaces is how many namespaces the cluster had.
	LiveNamespaces int `json:"liveNamespaces"`
	// Unbound are the errors of actions whose AppliesTo failed, and of missing actions.
	Unbound []string `json:"unbound,omitempty"`
	// Actions are the names of those that could be, sorted.
	Actions []string `json:"actions,omitempty"`
	// Kinds are what the first pass lists, in its order. One that is no longer served is an error;
	// kinds that came later are not in the backup.
	Kinds []Kind `json:"kinds,omitempty"`
}

// PostOperation is how far the items are that operations named. All of them are read before an
// action sees one.
type PostOperation struct {
	// Read is how many of them, in the order of the operations, are in the item spools of the
	// records up to this one, or in their notes since they could not be read.
	Read int `json:"read"`
	// Unbound are the errors about missing actions that are in the notes up to this record.
	Unbound []string `json:"unbound,omitempty"`
}

// Kind is a kind to be listed.
type Kind struct {
	// Resource is what is listed ("pods", "widgets.example.com").
	Resource string `json:"resource"`
	// Spread is true where each namespace is listed by itself.
	Spread bool `json:"spread,omitempty"`
}

// Part names a part and its sidecar in the bucket. A part without items has no object of its own:
// Key is empty then.
type Part struct {
	Key           string `json:"key,omitempty"`
	Size          int64  `json:"size,omitempty"`
	SHA256        string `json:"sha256,omitempty"`
	SidecarKey    string `json:"sidecarKey,omitempty"`
	SidecarSize   int64  `json:"sidecarSize,omitempty"`
	SidecarSHA256 string `json:"sidecarSha256,omitempty"`
	Items         int    `json:"items"`
	Warnings      int    `json:"warnings"`
	Errors        int    `json:"errors"`
}

// Spool names an item spool, a file in the format of package itemset.
type Spool struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Items  int    `json:"items"`
}

// Object names an object, whatever its version.
type Object struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Call is a call of an action about an object.
type Call struct {
	Action string `json:"action"`
	Object Object `json:"object"`
}

// Outcome is how a call ended. A holder that has it does not make the call again.
type Outcome struct {
	Call
	effect.Answer
	// Patch is what the action changed, as a JSON merge patch (RFC 7386), where the call is not
	// made again when the object is stored again after the operations; nil if it changed nothing.
	Patch []byte `json:"patch,omitempty"`
	// Begun is the operation that the call began, also where it failed otherwise; nil without one.
	Begun *operation.Operation `json:"begun,omitempty"`
	// NotSent is set instead when the call was not made after all: it still may be.
	NotSent bool `json:"unsent,omitempty"`
}

// Covers reports whether the record is about parts or ranges, and not of calls alone: a composition
// needs no others.
func (r *Record) Covers() bool {
	return r.Start != nil || r.Part.SidecarKey != "" || len(r.Ranges) > 0 || len(r.Volumes)+len(r.Snapshots)+len(r.HooksEnded) > 0
}

// Range is a contiguous piece of one list.
type Range struct {
	// Unit identifies the list.
	Unit string `json:"unit"`
	// Resource is what is listed ("pods", "widgets.example.com").
	Resource string `json:"resource"`
	// Kind is the kind of the objects, as in the manifest; Namespace is set where the list is of
	// one namespace.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Revision is the revision the range was listed at.
	Revision string `json:"revision"`
	// Reason is why that is not the backup's first revision, if it is not.
	Reason string `json:"reason,omitempty"`
	// After is the last key ("namespace/name") before the range, Last the last one in it; empty at
	// the start of the list and when there was no object.
	After string `json:"after,omitempty"`
	Last  string `json:"last,omitempty"`
	// Items is the number of objects of the range that were stored or held.
	Items int `json:"items,omitempty"`
	// Continue is the token of the page after the range; empty with Done.
	Continue string `json:"continue,omitempty"`
	// Done is true when the list ends with this range.
	Done bool `json:"done,omitempty"`
}
