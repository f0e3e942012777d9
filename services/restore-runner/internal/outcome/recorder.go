package outcome

import (
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/utils/clock"

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
	results Results
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
	r.plan, r.actions, r.counts.Total = p, make([]code, p.Len()), p.Len()
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
	r.write(slog.LevelInfo, node, string(action))
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
	r.write(slog.LevelInfo, node, message)
}

// Warn counts a warning and files it where the results hold those of the object, or of the restore as a whole.
func (r *Recorder) Warn(node int32, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Warnings++
	r.results.Warnings.add(r.scope(node), r.named(node, message))
	r.note(node, Record{Warning: message})
	r.write(slog.LevelWarn, node, message)
}

// Error counts an error and files it like Warn.
func (r *Recorder) Error(node int32, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Errors++
	r.results.Errors.add(r.scope(node), r.named(node, message))
	r.note(node, Record{Error: message})
	r.write(slog.LevelError, node, message)
}

func (r *Recorder) note(node int32, rec Record) { r.records.add(r.record(node, rec)) }

// named puts the object in front of a message, unless the message names it.
func (r *Recorder) named(node int32, message string) string {
	if node == General {
		return message
	}
	return fmt.Sprintf("%s %s: %s", r.plan.Kind(node), r.name(node), message)
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

// scope says under which key of the results a message goes.
func (r *Recorder) scope(node int32) scope {
	if node == General {
		return scope{velero: true}
	}
	return scope{namespace: r.plan.Target(node)}
}

func (r *Recorder) write(level slog.Level, node int32, message string) {
	line := Line{Time: r.clock.Now(), Level: level, Message: message}
	if node != General {
		line.Resource, line.Namespace, line.Name = r.plan.Kind(node).String(), r.plan.Target(node), r.plan.Node(node).Name
	}
	r.log.Write(line)
}
