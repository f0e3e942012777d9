package outcome

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// History is what earlier holders of a restore left to be done, besides what the Recorder shows. It
// holds entries for what is open and for owners only, not for every object. The zero value is that
// of a restore that no runner worked on before.
type History struct {
	// Resumed reports that there was an earlier holder.
	Resumed bool
	// Blind reports that nothing is known of what that holder did.
	NoHistory bool
	// Owners has the UID of each owner with an outcome, "" for one that does not exist.
	Owners map[int32]types.UID
	// Owing are the objects that still lack owner references.
	Owing map[int32]*Owes
	// Intents has the objects without an outcome to which something may have been done.
	Intents map[int32]apply.Intent
	// Volumes are those that were made, or begun, of snapshots, for objects without an outcome.
	Volumes map[int32]*Volume
	// Calls has the calls that were announced, of objects without an outcome: the answers by
	// action, nil where it is not known how the call ended, or whether it was made.
	Calls map[int32]map[string]*Answer
	// Names has the PersistentVolumes, those with an outcome too, that have another name in the
	// cluster.
	Names map[int32]string
	// Moved has the objects that actions gave another place or kind.
	Moved map[int32]Moved
	// Served are the definitions that were seen established.
	Served []int32
	// Lost has the target namespaces nothing can be restored into, with the reason.
	Lost map[string]string
	// Unknown counts records of objects that are not in the plan.
	Unknown int

	steps []string
}

// Passed reports whether a step is complete.
func (h *History) Passed(step string) bool { return slices.Contains(h.steps, step) }

// Head is what has to be known before the records can be replayed.
type Head struct {
	Planned  *Planned
	Finished *Finished
}

// ReadHead finds the head in a file of records.
func (h *Head) ReadHead(data []byte) error {
	return EachRecord(data, func(rec *Record) {
		if rec.Planned != nil {
			h.Planned = rec.Planned
		}
		if rec.Finished != nil {
			h.Finished = rec.Finished
		}
	})
}

// Replay applies a file of records of an earlier holder, in the order in which they were stored,
// and adds to history. The plan must be set.
func (r *Recorder) Replay(data []byte, history *History) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return EachRecord(data, func(rec *Record) {
		node := General
		if rec.Resource != "" {
			var ok bool
			if node, ok = r.plan.Find(rec.Resource, rec.Namespace, rec.Name); !ok {
				history.Unknown++
				r.keepOperations(General, rec)
				return
			}
		}
		r.applyRecord(node, rec)
		history.addRecord(r, node, rec)
	})
}

func (h *History) addRecord(r *Recorder, node int32, rec *Record) {
	if rec.Step != "" {
		h.steps = append(h.steps, rec.Step)
	}
	if rec.Lost != nil {
		putLazy(&h.Lost, rec.Lost.Namespace, rec.Lost.Reason)
	}
	if node == General {
		return
	}
	if rec.Intent != "" {
		putLazy(&h.Intents, node, rec.Intent)
	}
	if rec.Volume != nil && !rec.Volume.fillsClaim() {
		putLazy(&h.Volumes, node, rec.Volume)
		if rec.Volume.Name != "" {
			putLazy(&h.Names, node, rec.Volume.Name)
		}
	}
	if rec.Call != nil {
		h.noteCall(node, rec.Call)
	}
	if rec.Owes != nil {
		putLazy(&h.Owing, node, rec.Owes)
	}
	if rec.Linked {
		delete(h.Owing, node)
	}
	if rec.Moved != nil {
		putLazy(&h.Moved, node, *rec.Moved)
	}
	if rec.Served {
		h.Served = append(h.Served, node)
	}
	if rec.Action == "" {
		return
	}
	delete(h.Intents, node)
	delete(h.Calls, node)
	delete(h.Volumes, node)
	if r.plan.Owns(node) {
		putLazy(&h.Owners, node, rec.UID)
	}
}

func putLazy[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}
