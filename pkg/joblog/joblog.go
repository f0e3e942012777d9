// Package joblog is the log of one backup or restore as its owner reads it: the lines of the log
// file, and the warnings and errors of the results file, in Velero 1.18's formats.
package joblog

import "time"

// Level is how grave an Entry is.
type Level uint8

// The levels of Velero's logger (logrus). Warnings and errors are counted and appear in the
// results.
const (
	Debug Level = iota
	Info
	Warning
	Error
)

// String returns logrus' name of the level.
func (l Level) String() string {
	switch l {
	case Debug:
		return "debug"
	case Info:
		return "info"
	case Warning:
		return "warning"
	default:
		return "error"
	}
}

// Entry is one line of a job's log. It must never hold contents of Secrets.
type Entry struct {
	Time    time.Time
	Level   Level
	Message string
	// Err is the text of the error the entry reports, if any.
	Err string
	// Scoped reports that the entry is about an object: its result is filed under Namespace, or
	// under "cluster" when that is empty. An entry that is not scoped is filed under "velero".
	Scoped    bool
	Namespace string
	// Resource is the lower-case plural, with its group ("deployments.apps") outside the core
	// group.
	Resource string
	Name     string
	// Source is what wrote the line, such as a plugin's name or "holdfast/backup-runner".
	Source string
}
