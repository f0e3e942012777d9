package assembly

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// memoryBytes of messages are kept in memory.
const memoryBytes = 1 << 20

// errRecord means that a file in the work directory holds something else than what was written.
var errRecord = errors.New("damaged work file of the results")

// Results are the warnings and errors of one job, for its results file (Velero 1.18). They are not safe
// for concurrent use.
type Results struct {
	sorter    *extsort.Sorter
	key, text []byte
}

// NewResults returns empty results that keep in dir, which must exist, what does not fit into memory.
// Write or Close ends them.
func NewResults(dir string) *Results {
	return &Results{sorter: extsort.New(extsort.Config{Dir: dir, MemoryBytes: memoryBytes})}
}

// Add files a message by the entry's scope; entries below Warning are left out. The messages
// of one scope come in the order of the bytes of place.
func (r *Results) Add(e *joblog.Entry, place []byte, message string) error {
	switch e.Level {
	case joblog.Warning:
		r.key = append(r.key[:0], ofWarnings)
	case joblog.Error:
		r.key = append(r.key[:0], ofErrors)
	default:
		return nil
	}
	switch {
	case !e.Scoped:
		r.key = append(r.key, ofVelero)
	case e.Namespace == "":
		r.key = append(r.key, ofCluster)
	default:
		r.key = append(append(r.key, ofSpace), e.Namespace...)
	}
	group := len(r.key)
	r.key = append(append(r.key, 0), place...)
	r.text = binary.AppendUvarint(r.text[:0], uint64(group)) //nolint:gosec // a length
	return r.sorter.Add(r.key, append(r.text, message...))
}

// Write writes the document and ends the results: nothing can be added, and it cannot be written
// again.
func (r *Results) Write(w io.Writer) (err error) {
	sorted, err := r.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	var d document
	for {
		key, value, err := sorted.Next()
		if errors.Is(err, io.EOF) {
			return d.endDocument(w)
		}
		if err == nil {
			err = d.addResult(w, key, value)
		}
		if err != nil {
			return err
		}
	}
}

// Close releases results that are not written after all; after Write it does nothing.
func (r *Results) Close() error { return r.sorter.Close() }
