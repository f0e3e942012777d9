package assembly

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// logNotes turns log entries into the log, by time, and into the results, by what they concern.
type logNotes struct {
	dir              string
	field, value     string
	lines            *extsort.Sorter
	results          *Results
	warnings, errors int
	key, text        []byte
	seq              uint32
}

func newNotes(dir string, plan *Plan) *logNotes {
	cfg := extsort.Config{Dir: dir, MemoryBytes: 1 << 20}
	return &logNotes{
		dir: dir, field: cmp.Or(plan.LogField, "backup"), value: plan.LogValue, lines: extsort.New(cfg), results: NewResults(dir),
	}
}

// addEntry files an entry of the part numbered order.
func (n *logNotes) addEntry(e *joblog.Entry, order uint32) error {
	n.text = joblog.AppendText(n.text[:0], e, n.field, n.value)
	if err := n.lines.Add(n.appendSortKey(n.key[:0], e, order), n.text); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	switch e.Level {
	case joblog.Warning:
		n.warnings++
	case joblog.Error:
		n.errors++
	default:
		return nil
	}
	n.key = n.appendSortKey(n.key[:0], e, order)
	if err := n.results.Add(e, n.key, joblog.ResultMessage(e)); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// appendSortKey orders entries by time, then part, then as they were noted.
func (n *logNotes) appendSortKey(dst []byte, e *joblog.Entry, order uint32) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(0, e.Time.UnixNano()))) //nolint:gosec // not negative
	n.seq++
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, order), n.seq)
}

func (n *logNotes) close() { _ = errors.Join(n.lines.Close(), n.results.Close()) } // everything was read, or the error is another one

// writeFiles writes both files.
func (n *logNotes) writeFiles(ctx context.Context, into *Merged) (err error) {
	into.Warnings, into.Errors = n.warnings, n.errors
	if into.Log, err = n.createFile(ctx, "log-*", n.writeLog); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if into.Results, err = n.createFile(ctx, "results-*", n.results.Write); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// writeLog writes the sorted lines.
func (n *logNotes) writeLog(out io.Writer) (err error) {
	sorted, err := n.lines.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	for {
		_, line, err := sorted.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			return err
		}
	}
}

// createFile makes a file of what write writes, unless ctx ends before.
func (n *logNotes) createFile(ctx context.Context, pattern string, write func(io.Writer) error) (part.File, error) {
	out, err := newOutput(n.dir, pattern, true)
	if err != nil {
		return part.File{}, err
	}
	if err := write(ending{ctx, out}); err != nil {
		return part.File{}, errors.Join(err, out.discardOutput())
	}
	return out.finishOutput()
}

// ending is a writer that fails once ctx has ended.
type ending struct {
	ctx context.Context //nolint:containedctx // it is the writer's whole purpose
	out io.Writer
}

// Write implements io.Writer.
func (e ending) Write(p []byte) (int, error) {
	if err := context.Cause(e.ctx); err != nil {
		return 0, err
	}
	return e.out.Write(p)
}
