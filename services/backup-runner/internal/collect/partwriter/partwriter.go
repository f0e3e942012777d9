// Package partwriter makes what one worker collects durable: objects and log entries in a part,
// objects that wait for actions in an item spool, and then the record that names both. It also
// counts the objects of the running backup and makes its log entries.
package partwriter

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Records makes records durable; history.Log is one.
type Records interface {
	// Append makes a record durable and returns its key. The error wraps journal.ErrFenced when the
	// record never will be.
	Append(ctx context.Context, rec checkpoint.Record) (key string, err error)
	// Pending reports whether a record is due though nothing was collected.
	Pending() bool
}

// Config is what the writers of a backup share. Everything is required but
// PostOperation.
type Config struct {
	Backup string
	UID    string
	// Epoch is the claim's.
	Epoch int64
	// Started is the modification time of the objects.
	Started time.Time
	// Dir is where parts and spools are written.
	Dir string
	// PartBytes and PartItems are when a part is full.
	PartBytes int64
	PartItems int
	Clock     clock.PassiveClock
	Log       *slog.Logger
	Store     objectstore.Writer
	Records   Records
	// Revisions returns the common revisions taken so far.
	Revisions func() []string
	// PostOperation returns the progress with the items that operations named, for the records; nil,
	// and a nil result, mean none.
	PostOperation func() *checkpoint.PostOperation
	Spools        *itemset.SpoolFiles
	// Lines has what plugins log; nil if they do not.
	Lines    *PluginLines
	Progress *Counter
	// Sealed is called for each record of a part, which is durable; also concurrently.
	Sealed func(key string, p *checkpoint.Part)
}

// MaxRanges bounds the lists in one record, most of which may be empty.
const MaxRanges = 1000

// Writer writes one part after another. Used by one goroutine at a time.
type Writer struct {
	// Record becomes the record of the open part; callers add to it. It also has the pages without
	// objects since the last part.
	Record checkpoint.Record

	cfg *Config
	id  int
	// uploads is the context of uploads: they outlive the list they began in.
	uploads    context.Context //nolint:containedctx // see above
	open       *part.Writer    // nil between parts
	n          int             // parts begun
	noted      bool            // the open part holds log entries
	namespaces map[string]struct{}
	spool      *itemset.SpoolWriter // nil between spools
	spools     int                  // spools begun
	spoolFile  uint32               // number of the open spool
	flight     chan error           // the upload under way, nil if there is none
}

// New returns a writer whose uploads end with uploads. The id is unique among the writers of cfg.
func New(uploads context.Context, cfg *Config, id int) *Writer {
	return &Writer{cfg: cfg, id: id, uploads: uploads}
}

// ID is the one that New got.
func (w *Writer) ID() int { return w.id }

// Uploads is the context of uploads.
func (w *Writer) Uploads() context.Context { return w.uploads }

// Part returns the open part, beginning one if needed. It is valid until Seal or Flush.
func (w *Writer) Part() (*part.Writer, error) {
	if w.open != nil {
		return w.open, nil
	}
	open, err := part.NewWriter(part.Config{Dir: w.cfg.Dir, ModTime: w.cfg.Started})
	if err != nil {
		return nil, fmt.Errorf("begin a part: %w", err)
	}
	w.open, w.n = open, w.n+1
	return open, nil
}

// Spool returns the open item spool with its number, beginning one if needed. It is valid until
// Seal or Flush.
func (w *Writer) Spool() (*itemset.SpoolWriter, uint32, error) {
	if w.spool == nil {
		spool, err := itemset.CreateSpool(w.cfg.Dir)
		if err != nil {
			return nil, 0, err
		}
		w.spool, w.spoolFile, w.spools = spool, w.cfg.Spools.Add(spool.Path()), w.spools+1
	}
	return w.spool, w.spoolFile, nil
}

// Full reports whether there is enough to be sealed.
func (w *Writer) Full() bool {
	return (w.open != nil && (w.open.Size() >= w.cfg.PartBytes || w.open.Items()+w.open.Failed() >= w.cfg.PartItems)) ||
		w.countUnstored() >= w.cfg.PartItems || len(w.Record.Ranges) >= MaxRanges ||
		(w.spool != nil && (w.spool.Size() >= w.cfg.PartBytes || w.spool.Items() >= w.cfg.PartItems))
}

// countUnstored is how many objects the record names that need not be in the part.
func (w *Writer) countUnstored() int {
	return len(w.Record.LeftOut) + len(w.Record.Detached) + len(w.Record.Joined)
}

// Cover adds a committed page to what the part holds.
func (w *Writer) Cover(r checkpoint.Range) {
	ranges := w.Record.Ranges
	if n := len(ranges); n > 0 && ranges[n-1].Unit == r.Unit && ranges[n-1].Revision == r.Revision {
		r.After, r.Items = ranges[n-1].After, ranges[n-1].Items+r.Items
		ranges[n-1] = r
		return
	}
	w.Record.Ranges = append(w.Record.Ranges, r)
}

// Within adds namespaces of stored objects.
func (w *Writer) Within(namespaces map[string]struct{}) {
	if w.namespaces == nil {
		w.namespaces = map[string]struct{}{}
	}
	maps.Copy(w.namespaces, namespaces)
}

// Abandon drops the open part and what the record has of it.
func (w *Writer) Abandon() {
	if w.open != nil {
		w.open.Discard()
		w.open = nil
	}
	w.noted, w.Record, w.namespaces = false, checkpoint.Record{}, nil
}

// Discard removes what is unfinished and waits for an upload under way.
func (w *Writer) Discard() {
	if w.open != nil {
		w.open.Discard()
		w.open = nil
	}
	if w.spool != nil {
		w.spool.Discard()
		w.spool = nil
	}
	_ = w.awaitUpload() // the job has failed already, or there is nothing under way
}
