package publish

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/pkg/rawjson"
)

// notes turns log entries into the log, by time, and into the results, by what they concern.
type notes struct {
	dir              string
	field, value     string
	lines, results   *extsort.Sorter
	warnings, errors int
	key, text        []byte
	seq              uint32
}

func newNotes(dir string, plan *Plan) *notes {
	cfg := extsort.Config{Dir: dir, MemoryBytes: 1 << 20}
	return &notes{
		dir: dir, field: cmp.Or(plan.LogField, "backup"), value: plan.LogValue, lines: extsort.New(cfg), results: extsort.New(cfg),
	}
}

// Groups of the results, in the order of the file.
const (
	ofWarnings = 'w'
	ofErrors   = 'x'
	ofVelero   = 'a'
	ofCluster  = 'b'
	ofSpace    = 'c'
)

// add files an entry of the part numbered order.
func (n *notes) add(e *joblog.Entry, order uint32) error {
	n.text = joblog.AppendText(n.text[:0], e, n.field, n.value)
	if err := n.lines.Add(n.place(n.key[:0], e, order), n.text); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	switch e.Level {
	case joblog.Warning:
		n.warnings++
		n.key = append(n.key[:0], ofWarnings)
	case joblog.Error:
		n.errors++
		n.key = append(n.key[:0], ofErrors)
	default:
		return nil
	}
	switch {
	case !e.Scoped:
		n.key = append(n.key, ofVelero)
	case e.Namespace == "":
		n.key = append(n.key, ofCluster)
	default:
		n.key = append(append(n.key, ofSpace), e.Namespace...)
	}
	group := len(n.key)
	n.key = n.place(append(n.key, 0), e, order)
	n.text = binary.AppendUvarint(n.text[:0], uint64(group)) // a length
	n.text = append(n.text, joblog.ResultMessage(e)...)
	if err := n.results.Add(n.key, n.text); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// place orders entries by time, then part, then as they were noted.
func (n *notes) place(dst []byte, e *joblog.Entry, order uint32) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(max(0, e.Time.UnixNano()))) //nolint:gosec // not negative
	n.seq++
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, order), n.seq)
}

func (n *notes) close() { _ = errors.Join(n.lines.Close(), n.results.Close()) }

// write writes both files.
func (n *notes) write(ctx context.Context, into *Merged) (err error) {
	into.Warnings, into.Errors = n.warnings, n.errors
	if into.Log, err = n.file(ctx, "log-*", n.lines, func(out io.Writer, _, line []byte) error {
		_, err := out.Write(line)
		return err
	}, nil); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	var r resultsWriter
	if into.Results, err = n.file(ctx, "results-*", n.results, r.add, r.end); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// file writes what each makes of the sorted records, and end of what follows them.
func (n *notes) file(ctx context.Context, pattern string, s *extsort.Sorter, each func(out io.Writer, key, value []byte) error, end func(io.Writer) error) (_ part.File, err error) {
	sorted, err := s.Sort()
	if err != nil {
		return part.File{}, err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	out, err := newOutput(n.dir, pattern, true)
	if err != nil {
		return part.File{}, err
	}
	for err == nil {
		var key, value []byte
		if key, value, err = sorted.Next(); err == nil {
			err = errors.Join(each(out, key, value), context.Cause(ctx))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
		if end != nil {
			err = end(out)
		}
	}
	if err != nil {
		return part.File{}, errors.Join(err, out.discard())
	}
	return out.finish()
}

// resultsWriter writes {"warnings":{"velero":[...],"cluster":[...],"namespaces":{"ns":[...]}},"errors":{...}} from messages
// in that order.
type resultsWriter struct {
	group string
	text  []byte
}

func (r *resultsWriter) add(out io.Writer, key, value []byte) error {
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(key)) {
		return part.ErrCorrupt
	}
	r.text = r.text[:0]
	if group := string(key[:length]); group != r.group {
		r.open(group)
		r.group = group
	} else {
		r.text = append(r.text, ',')
	}
	r.text = rawjson.AppendQuoted(r.text, string(value[n:]))
	_, err := out.Write(r.text)
	return err
}

// open closes the present group and opens another.
func (r *resultsWriter) open(group string) {
	sameHalf := false
	switch {
	case r.group == "" && group[0] == ofWarnings:
		r.text = append(r.text, `{"warnings":{`...)
	case r.group == "":
		r.text = append(r.text, `{"warnings":{},"errors":{`...)
	case r.group[0] == group[0]:
		sameHalf = true
		r.text = append(r.text, "],"...)
	default:
		r.closeGroup()
		r.text = append(r.text, `},"errors":{`...)
	}
	switch group[1] {
	case ofVelero:
		r.text = append(r.text, `"velero":[`...)
	case ofCluster:
		r.text = append(r.text, `"cluster":[`...)
	default:
		if !sameHalf || r.group[1] != ofSpace {
			r.text = append(r.text, `"namespaces":{`...)
		}
		r.text = append(rawjson.AppendQuoted(r.text, group[2:]), ":["...)
	}
}

func (r *resultsWriter) closeGroup() {
	r.text = append(r.text, ']')
	if r.group[1] == ofSpace {
		r.text = append(r.text, '}')
	}
}

func (r *resultsWriter) end(out io.Writer) error {
	r.text = r.text[:0]
	switch {
	case r.group == "":
		r.text = append(r.text, `{"warnings":{},"errors":{}}`...)
	case r.group[0] == ofWarnings:
		r.closeGroup()
		r.text = append(r.text, `},"errors":{}}`...)
	default:
		r.closeGroup()
		r.text = append(r.text, `}}`...)
	}
	_, err := out.Write(append(r.text, '\n'))
	return err
}
