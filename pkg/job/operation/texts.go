package operation

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/job/document"
)

const (
	// maxTexts bounds the texts of the events of a job that are kept whole, in bytes; of what comes
	// later cutText bytes of each are kept.
	maxTexts = 8 << 20
	cutText  = 32
)

// shorten cuts the texts of an event once those of the job take more than maxTexts, for every reader
// at the same event. What identifies an operation is not cut: where that takes too much it is
// ErrDamaged.
func (l *Log) shorten(e *Event) error {
	if l.names += e.names(); l.names > maxTexts {
		return fmt.Errorf("%w: the names of operations that were begun once more take more than %d bytes", ErrDamaged, maxTexts)
	}
	if e.Restart != nil {
		e.Restart.Instance = l.cut(e.Restart.Instance)
		e.Restart.Reason = l.cut(e.Restart.Reason)
	}
	if e.Request != nil {
		e.Request.Reason = l.cut(e.Request.Reason)
	}
	if e.Cancel != nil {
		e.Cancel.Reason = l.cut(e.Cancel.Reason)
	}
	if e.Answer != nil {
		e.Answer.Error = l.cut(e.Answer.Error)
	}
	if e.End != nil {
		e.End.Error, e.End.Units, e.End.Description = l.cut(e.End.Error), l.cut(e.End.Units), l.cut(e.End.Description)
	}
	return nil
}

// names is how many bytes the names take that an operation got when it was begun once more.
func (e *Event) names() int {
	if e.Restarted == nil {
		return 0
	}
	n := len(e.Restarted.ID)
	if h := e.Restarted.Home; h != nil {
		n += len(h.Instance) + len(h.Process)
	}
	return n
}

// fits refuses events that no reader would take after those before.
func (l *Log) fits(events []Event) error {
	n := l.names
	for i := range events {
		n += events[i].names()
	}
	if n > maxTexts {
		return fmt.Errorf("operations of %s: %w: the names of those that were begun once more take more than %d bytes", l.list.Job, document.ErrTooLarge, maxTexts)
	}
	return nil
}

func (l *Log) cut(text string) string {
	if l.texts += len(text); l.texts > maxTexts && len(text) > cutText {
		return clipTo(text, cutText)
	}
	return text
}
