package outcome

import (
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// tailBytes bounds what is kept in memory of the log of a running restore, for who reads it meanwhile.
const tailBytes = 512 << 10

// Log writes restore-<name>-logs.gz, in Velero 1.18's text format. One goroutine uses it at a time.
type Log struct {
	zip     *gzip.Writer
	restore string
	tail    *joblog.Tail
	line    []byte
	err     error
}

// NewLog starts a log of the restore "namespace/name" that goes, compressed, to w.
func NewLog(w io.Writer, restore string) *Log {
	return &Log{zip: gzip.NewWriter(w), restore: restore, tail: joblog.NewTail(tailBytes)}
}

// Write adds an entry. Errors are kept for Close.
func (l *Log) Write(e *joblog.Entry) {
	l.line = joblog.AppendText(l.line[:0], e, "restore", l.restore)
	l.tail.Add(string(l.line))
	if l.err == nil {
		_, l.err = l.zip.Write(l.line)
	}
}

// Close ends the log and reports what could not be written.
func (l *Log) Close() error { return errors.Join(l.err, l.zip.Close()) }
