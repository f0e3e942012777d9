package outcome

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// reportLog is the messages of a restore as its owner reads them: the log, and the results with the
// warnings and errors among them. The Recorder's lock guards it.
type reportLog struct {
	log     *Log
	results *assembly.Results
	filed   uint64 // messages in results
}

// writeLine adds a line to the log and returns its entry.
func (m *reportLog) writeLine(p *plan.Plan, level joblog.Level, node int32, line *Line) *joblog.Entry {
	e := &joblog.Entry{Time: time.UnixMilli(line.Time), Level: level, Message: line.Message, Source: line.Source}
	if e.Source == "" {
		e.Source = "holdfast/restore-runner"
	}
	if node != General {
		e.Scoped, e.Namespace = true, p.Target(node)
		e.Resource, e.Name = p.Kind(node).String(), p.Name(node)
	}
	m.log.Write(e)
	return e
}

// keepMessage keeps a message for the results. It fails when the work directory takes nothing more.
func (m *reportLog) keepMessage(e *joblog.Entry, message string) error {
	m.filed++
	place := binary.BigEndian.AppendUint64(nil, m.filed)
	if err := m.results.Add(e, place, message); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	return nil
}

// messageWithName puts the object in front of a message.
func messageWithName(p *plan.Plan, node int32, message string) string {
	if node == General {
		return message
	}
	return p.Kind(node).String() + " " + nameOf(p, node) + ": " + message
}

// nameOf is "namespace/name" in the cluster restored to, or the name alone.
func nameOf(p *plan.Plan, node int32) string {
	name := p.Name(node)
	if p.Class(node) == plan.NamespaceObject {
		return p.MapNamespace(name)
	}
	if namespace := p.Target(node); namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// Files are the documents of a restore, written once it has ended (Velero 1.18). Nothing may be
// recorded once one of them was written.
type Files struct{ recorder *Recorder }

// Files returns the documents of the restore.
func (r *Recorder) Files() Files { return Files{r} }

// LogTail is the end of the log as it is written.
func (r *Recorder) LogTail() *joblog.Tail { return r.report.log.tail }

// CloseLog ends the log.
func (f Files) CloseLog() error {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	return f.recorder.report.log.Close()
}

// WriteResults writes <restore>-results.gz's document: the messages so far. It can be called once.
func (f Files) WriteResults(w io.Writer) error {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	return f.recorder.report.results.Write(w)
}
