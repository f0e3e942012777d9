package partwriter

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Note keeps a log entry of this service in the part. It does not count.
func (w *Writer) Note(e joblog.Entry) error {
	e.Time, e.Source = w.cfg.Clock.Now(), LogSource
	return w.keepEntry(e)
}

// Inform notes an entry of level info.
func (w *Writer) Inform(e joblog.Entry) error {
	e.Level = joblog.Info
	return w.Note(e)
}

// Warn notes a counted warning.
func (w *Writer) Warn(e joblog.Entry) error {
	e.Level = joblog.Warning
	w.cfg.Progress.Noted(1, 0)
	return w.Note(e)
}

// Fail notes a counted error.
func (w *Writer) Fail(e joblog.Entry) error {
	e.Level = joblog.Error
	w.cfg.Progress.Noted(0, 1)
	return w.Note(e)
}

// LogEntry logs an entry of this service at its own level. A warning or an error counts.
func (w *Writer) LogEntry(e joblog.Entry) error {
	switch e.Level {
	case joblog.Warning:
		return w.Warn(e)
	case joblog.Error:
		return w.Fail(e)
	default:
		return w.Note(e)
	}
}

// Drain keeps what plugins have logged since the last call. Warnings and errors count.
func (w *Writer) Drain() error {
	for _, e := range w.cfg.Lines.Take() {
		switch e.Level {
		case joblog.Warning:
			w.cfg.Progress.Noted(1, 0)
		case joblog.Error:
			w.cfg.Progress.Noted(0, 1)
		}
		if err := w.keepEntry(e); err != nil {
			return err
		}
	}
	return nil
}

// keepEntry keeps a log entry in the part.
func (w *Writer) keepEntry(e joblog.Entry) error {
	open, err := w.Part()
	if err != nil {
		return err
	}
	if err := open.Note(e); err != nil {
		return fmt.Errorf("note a log entry: %w", err)
	}
	w.noted = true
	return nil
}
