package joblog

import (
	"strings"
	"sync"
)

// Tail keeps the last lines of a log that is being written, for those who follow it. Safe for concurrent use.
type Tail struct {
	limit int

	mu    sync.Mutex
	lines []string
	bytes int
	first int64 // the number of lines[0]
}

// NewTail returns a Tail that keeps so many bytes of whole lines, and the last line whatever its size.
func NewTail(limit int) *Tail { return &Tail{limit: limit} }

// Add adds a line.
func (t *Tail) Add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines, t.bytes = append(t.lines, line), t.bytes+len(line)
	for t.bytes > t.limit && len(t.lines) > 1 {
		t.bytes -= len(t.lines[0])
		t.lines[0] = ""
		t.lines, t.first = t.lines[1:], t.first+1
	}
}

// Read returns the lines from number from on, which counts from 0, and the number of the line after them. It returns no
// more than limit bytes, but at least one line unless there is none. leftOut is how many lines before them
// are no longer kept.
func (t *Tail) Read(from int64, limit int) (text string, next, leftOut int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	leftOut = max(t.first-from, 0)
	next = from + leftOut
	var out strings.Builder
	for next-t.first < int64(len(t.lines)) {
		line := t.lines[next-t.first]
		if out.Len() > 0 && out.Len()+len(line) > limit {
			break
		}
		out.WriteString(line)
		next++
	}
	return out.String(), next, leftOut
}
