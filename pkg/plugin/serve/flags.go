package serve

import (
	"log/slog"
	"strings"
)

// serverFlags are those of a server's flags that mean something to a plugin.
type serverFlags struct {
	level    slog.Level
	features []string
}

// parseFlags finds them among flags it does not know, as "--name value" or "--name=value". A server
// passes its whole command line, so nothing there is an error.
func parseFlags(args []string) serverFlags {
	f := serverFlags{level: slog.LevelInfo}
	for i, arg := range args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--log-level", "-log-level":
			f.level = parseLevel(value)
		case "--features", "-features":
			f.features = splitList(value)
		}
	}
	return f
}

// parseLevel reads the names that Velero and Holdfast give to levels.
func parseLevel(name string) slog.Level {
	switch strings.ToLower(name) {
	case "trace", "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "panic":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func splitList(list string) []string {
	var out []string
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}
