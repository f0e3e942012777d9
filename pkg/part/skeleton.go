package part

import (
	"errors"

	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Writer writes one part. It is not safe for concurrent use.
type Writer struct{}

// Mark is a place in a part to come back to.
type Mark struct{}

// NewWriter creates the part's files in cfg.Dir.
func NewWriter(cfg Config) (*Writer, error) { return nil, errors.ErrUnsupported }

// Add stores an object.
func (w *Writer) Add(it Item) error { return errors.ErrUnsupported }

// Fail records an object that entered processing and could not be stored: it appears in the resource list only.
func (w *Writer) Fail(it Item) error { return errors.ErrUnsupported }

// Note keeps a log entry in the sidecar.
func (w *Writer) Note(e joblog.Entry) error { return errors.ErrUnsupported }

// Mark returns the present end.
func (w *Writer) Mark() (Mark, error) { return Mark{}, errors.ErrUnsupported }

// Rewind cuts everything after m.
func (w *Writer) Rewind(m Mark) error { return errors.ErrUnsupported }

// Size returns about how many compressed bytes the part has now.
func (w *Writer) Size() int64 { return 0 }

// Items returns the number of objects stored.
func (w *Writer) Items() int { return 0 }

// Seal finishes the part.
func (w *Writer) Seal() (*Sealed, error) { return nil, errors.ErrUnsupported }

// Discard removes the files of a part that was not sealed.
func (w *Writer) Discard() {}
