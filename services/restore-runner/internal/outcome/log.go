package outcome

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Line is one line of a restore's log. It never holds contents of objects.
type Line struct {
	Time      time.Time
	Level     slog.Level
	Message   string
	Resource  string
	Namespace string
	Name      string
}

// Log writes restore-<name>-logs.gz: lines in Velero 1.18's text format (key=value). One goroutine uses it at a time.
type Log struct {
	buffer  *bufio.Writer
	zip     *gzip.Writer
	restore string
	err     error
}

// NewLog starts a log of the restore "namespace/name" that goes, compressed, to w.
func NewLog(w io.Writer, restore string) *Log {
	zip := gzip.NewWriter(w)
	return &Log{buffer: bufio.NewWriter(zip), zip: zip, restore: restore}
}

// Write adds a line. Errors are kept for Close.
func (l *Log) Write(line Line) {
	if l.err != nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "time=%q level=%s msg=%s logSource=restore-runner", line.Time.UTC().Format(time.RFC3339), level(line.Level), quote(line.Message))
	for _, field := range []struct{ key, value string }{
		{"name", line.Name}, {"namespace", line.Namespace}, {"resource", line.Resource}, {"restore", l.restore},
	} {
		if field.value != "" {
			b.WriteString(" " + field.key + "=" + quote(field.value))
		}
	}
	b.WriteByte('\n')
	_, l.err = l.buffer.WriteString(b.String())
}

// Close ends the log and reports what could not be written.
func (l *Log) Close() error {
	return errors.Join(l.err, l.buffer.Flush(), l.zip.Close())
}

func level(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}

// quote quotes a value unless it consists of characters that logrus writes bare.
func quote(s string) string {
	bare := func(r rune) bool {
		return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("-._/@^+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !bare(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
