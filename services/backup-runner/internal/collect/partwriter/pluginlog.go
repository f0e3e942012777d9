package partwriter

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// maxPluginBytes bounds the text of lines that wait for a worker.
const maxPluginBytes = 4 << 20

// PluginLines takes what plugins log while a backup is collected, for the backup's log. Its warnings and
// errors count. What does not fit before the next Take is dropped, and counts as one line of the
// highest level among it. The zero value is ready; safe for concurrent use.
type PluginLines struct {
	mu      sync.Mutex
	entries []joblog.Entry
	bytes   int
	dropped int
	last    time.Time // of the lines dropped
	worst   joblog.Level
}

// Add adds a line.
func (l *PluginLines) Add(e joblog.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(e.Message) + len(e.Err) + len(e.Source) + 100
	if l.bytes+size > maxPluginBytes {
		l.dropped++
		l.last = e.Time
		l.worst = max(l.worst, e.Level)
		return
	}
	l.bytes += size
	l.entries = append(l.entries, e)
}

// Take returns the lines since the last call; none of nil.
func (l *PluginLines) Take() []joblog.Entry {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.entries
	if l.dropped > 0 {
		out = append(out, joblog.Entry{Time: l.last, Level: l.worst, Source: LogSource,
			Message: fmt.Sprintf("plugins log too much: %d lines were dropped", l.dropped)})
	}
	l.entries, l.bytes, l.dropped, l.worst = nil, 0, 0, joblog.Debug
	return out
}
