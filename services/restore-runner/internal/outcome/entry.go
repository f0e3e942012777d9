package outcome

import (
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Entry gathers what happens to one object, or to the restore (General), until Commit makes all of
// it count at once. What is not committed is done again by a successor. One
// goroutine uses it.
type Entry struct {
	recorder *Recorder
	node     int32
	record   Record
	said     int  // bytes of the messages
	cut      bool // there are more than are kept
}

// maxMessage bounds a message, and maxSaid those of an entry that are no errors, in bytes: however
// they are escaped, they fit into a line of a record, which a later holder of the restore has to
// read.
const (
	maxMessage = 64 << 10
	maxSaid    = 512 << 10
)

// boundedMessage cuts a message that is too long, and marks the cut.
func boundedMessage(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d more bytes)", message[:end], len(message)-end)
}

// Begin starts an entry about an object.
func (r *Recorder) Begin(node int32) *Entry { return &Entry{recorder: r, node: node} }

func (e *Entry) addMessage(level, message string) {
	message = boundedMessage(message)
	if e.said+len(message) > maxSaid && level != joblog.Error.String() && level != levelFatal {
		if e.cut {
			return
		}
		e.cut, level = true, joblog.Warning.String()
		message = fmt.Sprintf("there are more than %d KiB of messages: those that are no errors are left out from here", maxSaid>>10)
	}
	e.said += len(message)
	e.record.Log = append(e.record.Log, Line{Time: e.recorder.clock.Now().UnixMilli(), Level: level, Message: message})
}

// Mark is the number of messages in the entry so far, for Rewind.
func (e *Entry) Mark() int { return len(e.record.Log) }

// Rewind removes the messages since Mark: what they are about is retried.
func (e *Entry) Rewind(mark int) {
	for _, line := range e.record.Log[mark:] {
		e.said -= len(line.Message)
	}
	e.record.Log, e.cut = e.record.Log[:mark], false
}

// Info adds a line to the log.
func (e *Entry) Info(message string) { e.addMessage(joblog.Info.String(), message) }

// Warn adds a warning to log and results.
func (e *Entry) Warn(message string) { e.addMessage(joblog.Warning.String(), message) }

// Error adds an error to log and results.
func (e *Entry) Error(message string) { e.addMessage(joblog.Error.String(), message) }

// Done is the outcome of the object. uid is its identity in the cluster, "" when it is not there or
// not needed.
func (e *Entry) Done(action apply.Action, uid types.UID) {
	e.record.Action, e.record.UID, e.record.Time = action, uid, e.recorder.clock.Now().UnixMilli()
}

// Fail is the outcome of an object that could not be restored.
func (e *Entry) Fail(err error) {
	e.Error(err.Error())
	e.Done(apply.Failed, "")
}

// Owes notes the owner references that are still missing.
func (e *Entry) Owes(owes *Owes) { e.record.Owes = owes }

// Began notes an operation that was begun with the outcome of the object.
func (e *Entry) Began(o *operation.Operation) { e.record.Began = append(e.record.Began, *o) }

// Linked notes that missing owner references were dealt with.
func (e *Entry) Linked() { e.record.Linked = true }

// Moved notes the place and the kind that actions gave the object.
func (e *Entry) Moved(to Moved) { e.record.Moved = &to }

// LeftOut notes that the object is left out on purpose.
func (e *Entry) LeftOut() { e.record.LeftOut = true }

// Changes notes the paths of an existing object that would change, or differ.
func (e *Entry) Changes(fields []string) { e.record.Fields = fields }

// Unknown notes an effect that a dry run cannot tell.
func (e *Entry) Unknown(effect string) { e.record.Unknown = append(e.record.Unknown, effect) }

// Served notes that a definition is established.
func (e *Entry) Served() { e.record.Served = true }

// Lost notes that nothing can be restored into a namespace.
func (e *Entry) Lost(namespace, reason string) {
	e.record.Lost = &Lost{Namespace: namespace, Reason: reason}
}

// Step notes that a part of the restore is complete.
func (e *Entry) Step(step string) { e.record.Step = step }

// Commit makes the entry count. Its effects in the cluster must have happened.
func (e *Entry) Commit() {
	r := e.recorder
	if difference := r.expected.differsFrom(e.node, &e.record); difference != "" {
		e.Warn(difference)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.node != General {
		e.record.Resource, e.record.Namespace, e.record.Name = r.plan.Kind(e.node).String(), r.plan.Source(e.node), r.plan.Name(e.node)
	}
	r.applyRecord(e.node, &e.record)
	r.batch.addRecord(&e.record)
}
