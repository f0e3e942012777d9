package telemetry

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
)

// libraryShift lowers the level of a library's messages by one step, such as from Info to
// Debug.
const libraryShift = slog.LevelDebug - slog.LevelInfo

// Library returns a logger for a library to write to log with. Its warnings and errors keep their
// level; everything below appears one level lower than the library's, because the coming and
// going of a library's workers is no event of Holdfast's.
func Library(log *slog.Logger) logr.Logger {
	return logr.FromSlogHandler(libraryHandler{log.Handler()})
}

type libraryHandler struct{ slog.Handler }

func loweredLevel(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		level += libraryShift
	}
	return level
}

func (h libraryHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, loweredLevel(level))
}

func (h libraryHandler) Handle(ctx context.Context, record slog.Record) error {
	record.Level = loweredLevel(record.Level)
	return h.Handler.Handle(ctx, record)
}

func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryHandler{h.Handler.WithAttrs(attrs)}
}

func (h libraryHandler) WithGroup(name string) slog.Handler {
	return libraryHandler{h.Handler.WithGroup(name)}
}
