package outcome

import (
	"fmt"
	"sync"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// General is the node of messages that are about no object.
const General int32 = -1

// Recorder collects the outcomes of one restore. Safe for concurrent use.
type Recorder struct {
	plan  *plan.Plan
	clock clock.PassiveClock
	batch *lineBatch
	// expected does not change once there are outcomes.
	expected expectations

	mu      sync.Mutex
	tally   outcomeTally
	report  reportLog
	noted   int               // bytes
	volumes map[int32]*Volume // that were made of snapshots
	paused  map[apply.Target]*Paused
	begun   []Operation
	hooks   hookTable
	waits   waitSources
}

// NewRecorder returns a recorder that writes to log and requests a flush after each batch of that
// many records. Messages that do not fit into a little memory are kept in dir; empty is the
// system's directory for temporary files. The plan is set once it is known.
func NewRecorder(log *Log, clk clock.PassiveClock, batch int, dir string) *Recorder {
	none := &plan.Plan{}
	return &Recorder{plan: none, tally: outcomeTally{plan: none}, clock: clk, batch: newBatch(batch), report: reportLog{log: log, results: assembly.NewResults(dir)}}
}

// SetPlan sets the plan, before the first outcome of an object.
func (r *Recorder) SetPlan(p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = p
	r.tally.beginPlan(p)
}

// KeepNames replaces the plan by its names, once every object has its outcome.
func (r *Recorder) KeepNames(names *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan, r.tally.plan = names, names
}

// Ask makes an object that was kept in reserve one of those to restore. It is recorded with its
// outcome: until then the object that waits for it has none either. RequestDurably is for an object
// that does not wait.
func (r *Recorder) Ask(node int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.askReserved(node)
}

// RequestDurably is Ask for an object that comes after the one it was asked for: it is recorded before
// anything that is recorded later, because a successor that finds the outcome of the other does not
// ask again.
func (r *Recorder) RequestDurably(node int32) {
	if !r.plan.Reserve(node) {
		return
	}
	e := r.Begin(node)
	e.record.Asked = true
	e.Commit()
}

// Concerns reports whether an object is to be restored: it is selected, or was asked for.
func (r *Recorder) Concerns(node int32) bool {
	if !r.plan.Reserve(node) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, asked := r.tally.asked[node]
	return asked
}

// Counts returns the counts so far.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.counts
}

// SharedLeft is the number of definitions and other cluster-scoped objects without an outcome.
func (r *Recorder) SharedLeft() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.shared
}

// Action returns what became of an object; "" while it has no outcome.
func (r *Recorder) Action(node int32) apply.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	return codes[r.tally.actions[node]]
}

// Info records a line of the log by itself.
func (r *Recorder) Info(node int32, message string) {
	e := r.Begin(node)
	e.Info(message)
	e.Commit()
}

// Warn records a warning by itself.
func (r *Recorder) Warn(node int32, message string) {
	e := r.Begin(node)
	e.Warn(message)
	e.Commit()
}

// Error records an error by itself.
func (r *Recorder) Error(node int32, message string) {
	e := r.Begin(node)
	e.Error(message)
	e.Commit()
}

// maxNotes bounds the notes of one holder of a restore, in bytes.
const maxNotes = 4 << 20

// Note records a line of another process, such as a plugin; warnings and errors among them count. A
// flood of them is cut off with a warning.
func (r *Recorder) Note(line *joblog.Entry) {
	message := line.Message
	if line.Err != "" {
		message += ": " + line.Err
	}
	r.mu.Lock()
	before := r.noted
	r.noted += len(message) + len(line.Source)
	after := r.noted
	r.mu.Unlock()
	switch {
	case before > maxNotes:
		return
	case after > maxNotes:
		r.Warn(General, fmt.Sprintf("plugins have logged %d MiB: what they log from now on is left out", maxNotes>>20))
		return
	}
	e := r.Begin(General)
	e.record.Log = append(e.record.Log, Line{Time: line.Time.UnixMilli(), Level: line.Level.String(), Message: boundedMessage(message), Source: line.Source})
	e.Commit()
}

// Intend records what is about to be done to an object that was there before. It has to be durable
// (Sync) before it is done: afterwards the cluster has no trace of it.
func (r *Recorder) Intend(node int32, intent apply.Intent) {
	e := r.Begin(node)
	e.record.Intent = intent
	e.Commit()
}

// Provision records that a volume is about to be made of a snapshot for an object, and again with
// its id. The first has to be durable (Sync) before the call, which cannot be taken back or found
// again.
func (r *Recorder) Provision(node int32, v Volume) {
	e := r.Begin(node)
	e.record.Volume = &v
	e.Commit()
}

// Planned records the remarks of the plan, which are the last messages before the first effect.
// From then on records may be stored.
func (r *Recorder) Planned(planned *Planned) {
	for _, note := range r.plan.Notes() {
		if note.Warning {
			r.Warn(note.Node, note.Message)
		} else {
			r.Info(note.Node, note.Message)
		}
	}
	e := r.Begin(General)
	e.record.Planned = planned
	e.Commit()
	r.Open()
}

// Finish records how the restore ends, and with what counts; nothing may be recorded after it. A
// reason is written to the log without counting as an error.
func (r *Recorder) Finish(finished Finished) *Finished {
	e := r.Begin(General)
	finished.Time, finished.Counts = r.clock.Now().UnixMilli(), r.Counts()
	e.record.Finished = &finished
	if finished.Reason != "" {
		e.addMessage(levelFatal, "restore failed: "+finished.Reason)
	}
	e.Commit()
	r.Open()
	return &finished
}

// ByAction counts the objects by what became of them.
func (r *Recorder) ByAction() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tally.byAction()
}

// Close releases the files of messages that were not written after all.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.results.Close()
}

// applyRecord makes a record count; the caller holds the lock. A work directory that takes nothing more
// ends the restore.
func (r *Recorder) applyRecord(node int32, rec *Record) {
	for i := range rec.Log {
		line := &rec.Log[i]
		level := line.logLevel()
		e := r.report.writeLine(r.plan, level, node, line)
		switch {
		case line.Level == levelFatal:
			continue
		case level == joblog.Warning:
			r.tally.counts.Warnings++
		case level == joblog.Error:
			r.tally.counts.Errors++
		}
		message := line.Message
		if line.Source != "" {
			message = line.Source + ": " + message
		}
		if err := r.report.keepMessage(e, messageWithName(r.plan, node, message)); err != nil {
			r.batch.failRestore(err)
		}
	}
	setPaused(&r.paused, rec)
	r.keepOperations(node, rec)
	if node == General {
		return
	}
	r.hooks.applyRecord(node, rec, &r.tally.counts)
	if rec.Asked {
		r.tally.askReserved(node)
	}
	if rec.Moved != nil {
		r.tally.moved[node] = *rec.Moved
	}
	if rec.Volume != nil && (rec.Volume.ID != "" || rec.Volume.fillsClaim()) {
		putLazy(&r.volumes, node, rec.Volume)
	}
	if action := encodeAction(rec.Action); action != 0 {
		r.tally.setOutcome(node, action)
		r.report.writeLine(r.plan, joblog.Info, node, &Line{Message: string(rec.Action), Time: rec.Time})
	}
}
