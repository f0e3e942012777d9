package operation

const (
	// maxTexts bounds the texts of the events of a job that are kept whole, in bytes; of what comes
	// later cutText bytes of each are kept.
	maxTexts = 8 << 20
	cutText  = 32
)

// shorten cuts the texts of an event once those of the job take more than maxTexts, for every reader
// at the same event.
func (l *Log) shorten(e *Event) {
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
}

func (l *Log) cut(text string) string {
	if l.texts += len(text); l.texts > maxTexts && len(text) > cutText {
		return clipTo(text, cutText)
	}
	return text
}
