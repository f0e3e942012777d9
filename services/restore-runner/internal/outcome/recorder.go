package outcome

import (
	"encoding/json"
	"io"
	"sync"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// General is the node of messages that are about no object.
const General int32 = -1

// Counts is how far a restore is.
type Counts struct {
	Total, Done      int
	Warnings, Errors int
}

// Recorder collects the outcomes of one restore. Safe for concurrent use.
type Recorder struct {
	plan  *plan.Plan
	clock clock.PassiveClock
	log   *Log

	mu      sync.Mutex
	actions []code
	counts  Counts
	results joblog.Results
	records batch
}

// code is an action in one byte; zero means that there is no outcome yet.
type code uint8

var codes = []apply.Action{"", apply.Created, apply.Updated, apply.Failed, apply.Skipped}

func codeOf(a apply.Action) code {
	for i, known := range codes {
		if known == a {
			return code(i)
		}
	}
	return 0
}

// NewRecorder returns a recorder that writes to log. The plan is set once it is known.
func NewRecorder(log *Log, clk clock.PassiveClock) *Recorder {
	return &Recorder{clock: clk, log: log, plan: &plan.Plan{}}
}

// SetPlan says what is being restored, before the first outcome of an object.
func (r *Recorder) SetPlan(p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.actions = p, make([]code, p.Len())
	r.counts.Total, r.counts.Done = p.Len(), 0
}

// Counts returns the counts so far.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Done notes what became of an object. Messages about it go to Warn, Error and Info.
func (r *Recorder) Done(node int32, action apply.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.actions[node] == 0 {
		r.counts.Done++
	}
	r.actions[node] = codeOf(action)
	r.records.add(r.record(node, Record{Action: string(action)}))
	r.write(joblog.Info, node, string(action))
}

// Action returns what became of an object; "" while it has no outcome.
func (r *Recorder) Action(node int32) apply.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	return codes[r.actions[node]]
}

// Info writes a line to the log.
func (r *Recorder) Info(node int32, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(joblog.Info, node, message)
}

// Warn counts a warning and files it where the results hold those of the object, or of the restore as a whole.
func (r *Recorder) Warn(node int32, message string) { r.file(node, joblog.Warning, message) }

// Error counts an error and files it like Warn.
func (r *Recorder) Error(node int32, message string) { r.file(node, joblog.Error, message) }

// Fatal writes to the log why the restore ends; it counts as no error of an object.
func (r *Recorder) Fatal(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(joblog.Error, General, reason)
}

func (r *Recorder) file(node int32, level joblog.Level, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note := Record{Warning: message}
	r.counts.Warnings++
	if level == joblog.Error {
		note = Record{Error: message}
		r.counts.Warnings--
		r.counts.Errors++
	}
	e := r.write(level, node, message)
	r.results.Add(e, r.named(node, message))
	r.records.add(r.record(node, note))
}

// WriteResults writes <restore>-results.gz's document: the messages so far (Velero 1.18).
func (r *Recorder) WriteResults(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(w).Encode(r.results)
}

// CloseLog ends the log; nothing may be recorded after it.
func (r *Recorder) CloseLog() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Close()
}

// named puts the object in front of a message.
func (r *Recorder) named(node int32, message string) string {
	if node == General {
		return message
	}
	return r.plan.Kind(node).String() + " " + r.name(node) + ": " + message
}

// name is "namespace/name" in the cluster restored to, or the name alone.
func (r *Recorder) name(node int32) string {
	name := r.plan.Node(node).Name
	if r.plan.Class(node) == plan.NamespaceObject {
		return r.plan.MapNamespace(name)
	}
	if namespace := r.plan.Target(node); namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// write adds a line to the log and returns its entry.
func (r *Recorder) write(level joblog.Level, node int32, message string) *joblog.Entry {
	e := &joblog.Entry{Time: r.clock.Now(), Level: level, Message: message, Source: "holdfast/restore-runner"}
	if node != General {
		e.Scoped, e.Namespace = true, r.plan.Target(node)
		e.Resource, e.Name = r.plan.Kind(node).String(), r.plan.Node(node).Name
	}
	r.log.Write(e)
	return e
}

// ByAction counts the objects by what became of them.
func (r *Recorder) ByAction() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, c := range r.actions {
		if c != 0 {
			out[string(codes[c])]++
		}
	}
	return out
}
