// Package history is what earlier holders of a backup recorded: the fold of their records, which a
// holder that resumes the backup begins with. Its Log writes the records of one holder: what cannot be
// taken back is durable before it is done, and its outcome is in the next record of any kind.
package history

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// History is the fold of records. It does not change while anything is collected.
type History struct {
	// Start is what the first holder decided; nil if nothing was recorded.
	Start *checkpoint.Start
	// Revisions are the common revisions taken so far, oldest first.
	Revisions []string
	// Ended is true when the last log entry is recorded.
	Ended     bool
	Units     Units
	Acted     Acted
	Calls     Calls
	Snapshots Snapshots
	Hooks     Hooks
}

// New returns a history without records.
func New() *History {
	return &History{Units: NewUnits(), Acted: Acted{Joined: map[itemset.Key]struct{}{}}}
}

// Add adds the next record, which has that key in the bucket.
func (h *History) Add(key string, rec *checkpoint.Record) {
	if rec.Start != nil {
		h.Start = rec.Start
	}
	if len(rec.Revisions) > len(h.Revisions) {
		h.Revisions = rec.Revisions
	}
	h.Ended = h.Ended || rec.Ended
	for i := range rec.Ranges {
		h.Units.Cover(&rec.Ranges[i])
	}
	h.Acted.addRecord(rec)
	h.Calls.addRecord(key, rec)
	h.Snapshots.addRecord(rec)
	h.Hooks.Add(rec)
}

// AddCalls adds no more of a record than its calls and what the first holder decided.
func (h *History) AddCalls(key string, rec *checkpoint.Record) {
	if rec.Start != nil {
		h.Start = rec.Start
	}
	h.Calls.addRecord(key, rec)
}

// Snapshots is what was recorded of native snapshots.
type Snapshots struct {
	// Intended are the snapshots that were about to be taken, by volume.
	Intended map[string]nativesnapshot.Snapshot
	// Decided are the volumes of which nothing is left to be done.
	Decided map[string]struct{}
	// Promised is true when volumes were left to be decided on.
	Promised bool
}

func (s *Snapshots) addRecord(rec *checkpoint.Record) {
	if s.Intended == nil {
		s.Intended, s.Decided = map[string]nativesnapshot.Snapshot{}, map[string]struct{}{}
	}
	for i := range rec.Intended {
		s.Intended[rec.Intended[i].Spec.PersistentVolumeName] = rec.Intended[i]
	}
	for i := range rec.Volumes {
		switch v := &rec.Volumes[i]; {
		case v.Pending:
			s.Promised = true
		case v.PVName != "":
			s.Decided[v.PVName] = struct{}{}
		}
	}
}

// Calls are the calls that were about to be made and may have begun an operation. They are not made
// again.
type Calls struct {
	// outcomes has the key of the record with the outcome, "" if none has it.
	outcomes map[callKey]string
	begun    []operation.Operation
}

type callKey struct {
	object itemset.Key
	action string
}

func newCallKey(c *checkpoint.Call) callKey { return callKey{newItemKey(&c.Object), c.Action} }

func newItemKey(o *checkpoint.Object) itemset.Key {
	return itemset.KeyOf(schema.GroupKind{Group: o.Group, Kind: o.Kind}, o.Namespace, o.Name)
}

func (c *Calls) addRecord(key string, rec *checkpoint.Record) {
	if c.outcomes == nil && len(rec.Intents) > 0 {
		c.outcomes = map[callKey]string{}
	}
	for i := range rec.Intents {
		c.outcomes[newCallKey(&rec.Intents[i])] = ""
	}
	for i := range rec.Outcomes {
		if call := newCallKey(&rec.Outcomes[i].Call); rec.Outcomes[i].NotSent {
			delete(c.outcomes, call)
		} else {
			c.outcomes[call] = key
		}
		if o := rec.Outcomes[i].Begun; o != nil {
			c.begun = append(c.begun, *o)
		}
	}
}

// Operations returns what calls began, in no order; records that were written at the same time may
// have the same operation.
func (c *Calls) Operations() []operation.Operation { return c.begun }

// Begun reports whether a call was about to be made, and returns the key of the record that has its
// outcome, "" if none has.
func (c *Calls) Begun(call *checkpoint.Call) (record string, begun bool) {
	record, begun = c.outcomes[newCallKey(call)]
	return record, begun
}
