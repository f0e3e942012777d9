package joblog

import (
	"strconv"
	"strings"
	"time"
)

// AppendText appends the line of the log file, in the key=value format of logrus that Velero
// writes: time, level and msg first, then the fields by name. field and value say which job the
// line belongs to ("backup", "velero/nightly").
func AppendText(dst []byte, e *Entry, field, value string) []byte {
	dst = append(dst, `time="`...)
	dst = e.Time.UTC().AppendFormat(dst, time.RFC3339)
	dst = append(dst, `" level=`...)
	dst = append(dst, e.Level.String()...)
	dst = appendText(dst, "msg", e.Message)
	before := field < "error"
	if before {
		dst = appendOptional(dst, field, value)
	}
	dst = appendOptional(dst, "error", e.Err)
	dst = appendOptional(dst, "logSource", e.Source)
	dst = appendOptional(dst, "name", e.Name)
	if e.Scoped {
		dst = appendText(dst, "namespace", e.Namespace)
	}
	dst = appendOptional(dst, "resource", e.Resource)
	if !before {
		dst = appendOptional(dst, field, value)
	}
	return append(dst, '\n')
}

func appendOptional(dst []byte, key, value string) []byte {
	if value == "" {
		return dst
	}
	return appendText(dst, key, value)
}

func appendText(dst []byte, key, value string) []byte {
	dst = append(append(append(dst, ' '), key...), '=')
	if needsQuotes(value) {
		return strconv.AppendQuote(dst, value)
	}
	return append(dst, value...)
}

func needsQuotes(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._/@^+", c) >= 0) {
			return true
		}
	}
	return false
}

// ResultMessage returns the text a backup's results file has for the entry (Velero 1.18 layout).
func ResultMessage(e *Entry) string {
	var b strings.Builder
	for _, part := range [...][2]string{{"resource", e.Resource}, {"name", e.Name}, {"message", e.Message}, {"error", e.Err}} {
		if part[1] != "" {
			b.WriteString(" " + part[0] + ": /" + part[1])
		}
	}
	return b.String()
}

// Result is one half of a results file.
type Result struct {
	// Velero holds what concerns the job as a whole.
	Velero []string `json:"velero,omitempty"`
	// Cluster holds what concerns cluster-scoped objects.
	Cluster []string `json:"cluster,omitempty"`
	// Namespaces holds what concerns the objects of a namespace.
	Namespaces map[string][]string `json:"namespaces,omitempty"`
}

// Results is a results file (Velero 1.18 layout).
type Results struct {
	Warnings Result `json:"warnings"`
	Errors   Result `json:"errors"`
}
