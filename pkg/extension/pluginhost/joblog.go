package pluginhost

import (
	"context"
	"log/slog"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// JobLog returns a logger for [Host.Open] that hands every line of the plugins from level on to
// note, as a line of the job's log whose source is the plugin. Warnings and errors among them are
// warnings and errors of the job, as in Velero, and are handed on regardless of level. note is
// called from many goroutines at once.
func JobLog(level slog.Level, note func(joblog.Entry)) *slog.Logger {
	return slog.New(&jobHandler{level: min(level, slog.LevelWarn), note: note})
}

type jobHandler struct {
	level slog.Level
	note  func(joblog.Entry)
	attrs []slog.Attr
	group string
}

// Enabled leaves out what is less grave than the level.
func (h *jobHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle never fails.
func (h *jobHandler) Handle(_ context.Context, r slog.Record) error {
	e := joblog.Entry{Time: r.Time, Level: entryLevel(r.Level)}
	var text strings.Builder
	text.WriteString(r.Message)
	plugin := ""
	add := func(a slog.Attr) {
		switch a.Key {
		case "plugin":
			plugin = a.Value.String()
		case "error":
			e.Err = a.Value.String()
		case "logSource":
			e.Source = a.Value.String()
		default:
			text.WriteString(" " + a.Key + "=" + a.Value.String())
		}
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(func(a slog.Attr) bool {
		a.Key = h.group + a.Key
		add(a)
		return true
	})
	e.Source = orDefault(strings.Trim(plugin+"/"+e.Source, "/"), "plugin")
	e.Message = text.String()
	h.note(e)
	return nil
}

// WithAttrs returns the handler for lines that have these fields too.
func (h *jobHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		with.attrs = append(with.attrs, a)
	}
	return &with
}

// WithGroup returns the handler for lines whose fields have this prefix.
func (h *jobHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.group += name + "."
	return &with
}

func entryLevel(l slog.Level) joblog.Level {
	switch {
	case l >= slog.LevelError:
		return joblog.Error
	case l >= slog.LevelWarn:
		return joblog.Warning
	case l >= slog.LevelInfo:
		return joblog.Info
	default:
		return joblog.Debug
	}
}
