package jobtest

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// Events keeps the Events that are recorded. Safe for concurrent use.
type Events struct {
	mu    sync.Mutex
	lines []string
}

// Eventf implements mark.Events.
func (e *Events) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// Text is one line, "type reason: note", for each Event.
func (e *Events) Text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, "\n")
}
