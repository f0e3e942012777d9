package collect

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// maxLineBytes bounds the text of lines that wait for a worker.
const maxLineBytes = 4 << 20

// Lines takes what plugins log while a backup is collected, for the backup's log.
// Its warnings and errors count. What does not fit before a worker comes by is
// dropped and counted as gravely as the gravest of it. The zero value is ready;
// safe for concurrent use.
type Lines struct {
	mu      sync.Mutex
	entries []joblog.Entry
	bytes   int
	dropped int
	last    time.Time // of the lines dropped
	worst   joblog.Level
}

// Add adds a line.
func (l *Lines) Add(e joblog.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(e.Message) + len(e.Err) + len(e.Source) + 100
	if l.bytes+size > maxLineBytes {
		l.dropped++
		l.last = e.Time
		l.worst = max(l.worst, e.Level)
		return
	}
	l.bytes += size
	l.entries = append(l.entries, e)
}

// take returns the lines since the last call.
func (l *Lines) take() []joblog.Entry {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.entries
	if l.dropped > 0 {
		out = append(out, joblog.Entry{Time: l.last, Level: l.worst, Source: source,
			Message: fmt.Sprintf("plugins log too much: %d lines were dropped", l.dropped)})
	}
	l.entries, l.bytes, l.dropped, l.worst = nil, 0, 0, joblog.Debug
	return out
}

// drain writes the lines into the part.
func (w *worker) drain() error {
	for _, e := range w.run.Actions.Lines.take() {
		switch e.Level {
		case joblog.Warning:
			w.run.Progress.noted(1, 0)
		case joblog.Error:
			w.run.Progress.noted(0, 1)
		}
		if err := w.keep(e); err != nil {
			return err
		}
	}
	return nil
}
