package outcome

import (
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Log writes restore-<name>-logs.gz, in Velero 1.18's text format. One goroutine uses it at a time.
type Log struct {
	zip     *gzip.Writer
	restore string
	line    []byte
	err     error
}

// NewLog starts a log of the restore "namespace/name" that goes, compressed, to w.
func NewLog(w io.Writer, restore string) *Log { return &Log{zip: gzip.NewWriter(w), restore: restore} }

// Write adds an entry. Errors are kept for Close.
func (l *Log) Write(e *joblog.Entry) {
	if l.err != nil {
		return
	}
	l.line = joblog.AppendText(l.line[:0], e, "restore", l.restore)
	_, l.err = l.zip.Write(l.line)
}

// Close ends the log and reports what could not be written.
func (l *Log) Close() error { return errors.Join(l.err, l.zip.Close()) }
