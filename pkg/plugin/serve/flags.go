package serve

import (
	"log/slog"
	"strings"
)

// flags are those of a server's flags that mean something to a plugin.
type flags struct {
	level    slog.Level
	features []string
}

// parse finds them among flags it does not know, as "--name value" or "--name=value". A server
// passes its whole command line, so nothing there is an error.
func parse(args []string) flags {
	f := flags{level: slog.LevelInfo}
	for i, arg := range args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--log-level", "-log-level":
			f.level = level(value)
		case "--features", "-features":
			f.features = split(value)
		}
	}
	return f
}

// level reads the names that Velero and Holdfast give to levels.
func level(name string) slog.Level {
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

func split(list string) []string {
	var out []string
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}
