package serve

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
)

// newLogger writes lines as servers read them from a plugin's standard error: one JSON object each,
// with the keys @message and @level; the server adds the time. logSource, a file and line, is kept
// by Velero when @logSourceSetBy is set.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, AddSource: true, ReplaceAttr: renameAttr})
	return slog.New(handler.WithAttrs([]slog.Attr{slog.String("@logSourceSetBy", "plugin")}))
}

func renameAttr(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	switch value := attr.Value.Any().(type) {
	case slog.Level:
		if attr.Key == slog.LevelKey {
			return slog.String("@level", levelName(value))
		}
	case *slog.Source:
		if attr.Key == slog.SourceKey {
			return slog.String("logSource", fmt.Sprintf("%s:%d", filepath.Base(value.File), value.Line))
		}
	}
	switch attr.Key {
	case slog.TimeKey:
		return slog.Attr{}
	case slog.MessageKey:
		return slog.Attr{Key: "@message", Value: attr.Value}
	}
	return attr
}

func levelName(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	default:
		return "error"
	}
}
