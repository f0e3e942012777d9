// Package outcome is what a transfer of a volume's data reports: its progress, and its result with
// every entry that did not come through whole, each under the rule that says what became of it.
package outcome

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Rule says what became of an entry of a volume.
type Rule string

// The rules under which nothing is missing that could have been stored or restored.
const (
	// Socket, FIFO and Device entries have no data and are not stored.
	Socket Rule = "socket"
	FIFO   Rule = "fifo"
	Device Rule = "device"
	// Vanished entries were removed between the listing of their directory and their turn.
	Vanished Rule = "vanished"
	// Changed files were written to while they were read; they are stored as they were read.
	Changed Rule = "changed"
	// HardLink files have more than one name; each name is stored as a file of its own.
	HardLink Rule = "hard-link"
	// Attributes means that extended attributes, ACLs among them, are not stored, or were lost with an entry that a restore replaced.
	Attributes Rule = "attributes"
	// Sparse files have holes. These are read as zeros; a restore makes holes of zeros.
	Sparse Rule = "sparse"
)

// The rules under which something is missing.
const (
	// Unreadable entries could not be read; a directory is missing with all that is in it.
	Unreadable Rule = "unreadable"
	// Name means that the name is not UTF-8 and cannot be stored.
	Name Rule = "name"
	// Type means that the snapshot has an entry of an unknown type.
	Type Rule = "type"
	// Damaged files could not be read from the repository and were not restored.
	Damaged Rule = "damaged"
	// Metadata means that the owner, the mode or the times of a restored entry could not be set.
	Metadata Rule = "metadata"
)

// losesData reports whether something is missing under the rule.
func (r Rule) losesData() bool {
	return slices.Contains([]Rule{Unreadable, Name, Type, Damaged, Metadata}, r)
}

// Entry is an entry of the volume that the result lists.
type Entry struct {
	// Path is relative to the volume.
	Path string `json:"path"`
	Rule Rule   `json:"rule"`
	// Error is the reason, where there is one.
	Error string `json:"error,omitempty"`
}

// EntryError is a Rule for an entry with the reason. Readers of a volume return it, so that it can be told from
// errors of the repository.
type EntryError struct {
	Rule Rule
	Err  error
}

func (e *EntryError) Error() string { return fmt.Sprintf("%s: %v", e.Rule, e.Err) }

// Unwrap returns the reason.
func (e *EntryError) Unwrap() error { return e.Err }

// Phase is how a transfer ended.
type Phase string

const (
	// Completed means that everything that the rules promise was stored or restored.
	Completed Phase = "Completed"
	// PartiallyFailed means that the transfer ended, and that the result lists what is missing.
	PartiallyFailed Phase = "PartiallyFailed"
	// Failed means that there is no snapshot, or the volume is not restored.
	Failed Phase = "Failed"
	// Canceled means that the transfer was asked to stop. An upload goes on from there the next time.
	Canceled Phase = "Canceled"
)

// Result is the end of a transfer.
type Result struct {
	Phase Phase `json:"phase"`
	// Message is not empty unless the phase is Completed. With that it says why there was no maintenance.
	Message string `json:"message,omitempty"`
	// Unopened means that the repository could not be opened or created.
	Unopened bool `json:"unopened,omitempty"`
	// NotEmpty means that nothing was restored, since the target holds entries.
	NotEmpty bool `json:"notEmpty,omitempty"`
	// Foreign is when another program maintained the repository, as RFC 3339: there was no maintenance.
	Foreign string `json:"foreign,omitempty"`
	// Empty means that the maintained repository has nothing left that could be removed, and no snapshot.
	Empty bool `json:"empty,omitempty"`
	// SnapshotID is the ID of the snapshot that was stored or restored.
	SnapshotID string `json:"snapshotID,omitempty"`
	// Bytes is the length of all files; of a restore, what was written.
	Bytes int64 `json:"bytes"`
	// IncrementalBytes is how much of Bytes an upload read; the rest it took from an earlier snapshot.
	IncrementalBytes int64 `json:"incrementalBytes,omitempty"`
	Files            int64 `json:"files"`
	Directories      int64 `json:"directories"`
	Symlinks         int64 `json:"symlinks"`
	// Rules counts the entries under each rule.
	Rules map[Rule]int64 `json:"rules,omitempty"`
	// Entries lists them: up to 1,000 that something is missing of, and up to 1,000 others.
	Entries []Entry `json:"entries,omitempty"`
	// Unlisted is how many there are besides.
	Unlisted int64 `json:"unlisted,omitempty"`
}

// Lost returns the listed entries that something is missing of.
func (r *Result) Lost() []Entry {
	return slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool { return !e.Rule.losesData() })
}

// LacksContent reports whether the content of an entry is missing, and not only its owner, mode or time.
func (r *Result) LacksContent() bool {
	for rule, n := range r.Rules {
		if n > 0 && rule.losesData() && rule != Metadata {
			return true
		}
	}
	return false
}

// EncodeWithin returns the result as JSON of so many bytes at most. Where it is longer, entries that lack
// nothing are left out first, then others, then the end of the message.
func (r Result) EncodeWithin(limit int) ([]byte, error) {
	entries := append(r.Lost(), slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool { return e.Rule.losesData() })...)
	unlisted := r.Unlisted
	for keep := len(entries); ; keep /= 2 {
		r.Entries, r.Unlisted = entries[:keep], unlisted+int64(len(entries)-keep)
		data, err := json.Marshal(r)
		switch {
		case err != nil || len(data) <= limit:
			return data, err
		case keep == 0 && r.Message == "":
			return nil, fmt.Errorf("the result does not fit into %d bytes", limit)
		case keep == 0:
			r.Message = strings.ToValidUTF8(r.Message[:len(r.Message)/2], "")
		}
	}
}

// maxListed is how many entries a result lists of those that lack something, and how many of the others.
const maxListed = 1000

// Recorder collects entries while a transfer runs. It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	rules    map[Rule]int64
	entries  []Entry
	unlisted int64
	kept     [2]int // entries that lack nothing, and those that do
	lost     int64

	done, total atomic.Int64
}

// Add records an entry; err may be nil.
func (r *Recorder) Add(path string, rule Rule, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules == nil {
		r.rules = map[Rule]int64{}
	}
	r.rules[rule]++
	class := 0
	if rule.losesData() {
		class = 1
		r.lost++
	}
	if r.kept[class] == maxListed {
		r.unlisted++
		return
	}
	r.kept[class]++
	e := Entry{Path: path, Rule: rule}
	if err != nil {
		e.Error = err.Error()
	}
	r.entries = append(r.entries, e)
}

// AddDone counts bytes that were transferred, or taken from an earlier snapshot.
func (r *Recorder) AddDone(n int64) { r.done.Add(n) }

// SetTotal sets how many bytes there are, as far as it is known.
func (r *Recorder) SetTotal(n int64) { r.total.Store(n) }

// Progress is a report of a transfer under way, in bytes. The total is 0 until it is known.
type Progress struct {
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
}

// Progress returns how far the transfer is.
func (r *Recorder) Progress() Progress {
	return Progress{BytesDone: r.done.Load(), BytesTotal: r.total.Load()}
}

// Finish fills what was recorded into a result whose phase is Completed, and lowers the phase if
// something is missing.
func (r *Recorder) Finish(result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Rules, result.Entries, result.Unlisted = r.rules, r.entries, r.unlisted
	if result.Phase == Completed && r.lost > 0 {
		result.Phase = PartiallyFailed
		result.Message = fmt.Sprintf("entries that are not whole: %d", r.lost)
	}
}
