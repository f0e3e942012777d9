package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
)

// results collects what sealed parts add up to.
type results struct {
	mu     sync.Mutex
	result Result
}

func (r *results) sealed(key string, p *checkpoint.Part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Checkpoints = append(r.result.Checkpoints, key)
	r.result.Items += p.Items
	r.result.Warnings += p.Warnings
	r.result.Errors += p.Errors
}

// worker writes one part after another. Used by one goroutine at a time.
type worker struct {
	run  *run
	id   int
	open *part.Writer // nil between parts
	// uploads is the context of uploads: they outlive the unit they began in.
	uploads context.Context //nolint:containedctx // see above
	n       int             // parts begun
	hold    *held.Writer    // open file of held objects, nil between them
	holds   int             // such files begun
	typed   []byte          // scratch: an object with its type
	// holdFile is the number of the open file of held objects.
	holdFile uint32
	noted    bool // the open part holds log entries
	// record will stand for the open part; it also has the pages without objects
	// since the last one.
	record     checkpoint.Record
	namespaces map[string]struct{} // of the objects in the part
	// flight is the upload of the part before, nil if there is none.
	flight chan error
}

// part returns the open part, beginning one if needed.
func (w *worker) part() (*part.Writer, error) {
	if w.open != nil {
		return w.open, nil
	}
	open, err := part.NewWriter(part.Config{Dir: w.run.Dir, ModTime: w.run.Backup.Status.StartTimestamp.Time})
	if err != nil {
		return nil, fmt.Errorf("begin a part: %w", err)
	}
	w.open, w.n = open, w.n+1
	return open, nil
}

// note keeps a log entry of this service in the part.
func (w *worker) note(e joblog.Entry) error {
	e.Time, e.Source = w.run.Clock.Now(), source
	return w.keep(e)
}

// keep keeps a log entry in the part.
func (w *worker) keep(e joblog.Entry) error {
	open, err := w.part()
	if err != nil {
		return err
	}
	if err := open.Note(e); err != nil {
		return fmt.Errorf("note a log entry: %w", err)
	}
	w.noted = true
	return nil
}

// maxRanges bounds the lists that one record tells of, most of which may be empty.
const maxRanges = 1000

// full reports whether there is enough to be sealed.
func (w *worker) full() bool {
	return (w.open != nil && (w.open.Size() >= w.run.PartBytes || w.open.Items()+w.open.Failed() >= w.run.PartItems)) ||
		w.unstored() >= w.run.PartItems || len(w.record.Ranges) >= maxRanges ||
		(w.hold != nil && (w.hold.Size() >= w.run.PartBytes || w.hold.Items() >= w.run.PartItems))
}

// unstored is how many objects the record names that need not be in the part.
func (w *worker) unstored() int {
	return len(w.record.LeftOut) + len(w.record.Aside) + len(w.record.Joined)
}

// covered adds a committed page to what the part holds.
func (w *worker) covered(r checkpoint.Range) {
	ranges := w.record.Ranges
	if n := len(ranges); n > 0 && ranges[n-1].Unit == r.Unit && ranges[n-1].Revision == r.Revision {
		r.After, r.Items = ranges[n-1].After, ranges[n-1].Items+r.Items
		ranges[n-1] = r
		return
	}
	w.record.Ranges = append(w.record.Ranges, r)
}

// within adds namespaces of stored objects.
func (w *worker) within(namespaces map[string]struct{}) {
	if w.namespaces == nil {
		w.namespaces = map[string]struct{}{}
	}
	maps.Copy(w.namespaces, namespaces)
}

// discard removes an unfinished part and waits for an upload under way.
func (w *worker) discard() {
	if w.open != nil {
		w.open.Discard()
		w.open = nil
	}
	if w.hold != nil {
		w.hold.Discard()
		w.hold = nil
	}
	_ = w.land() // the job has failed already, or there is nothing under way
}

// batch is what a worker makes durable at once. Either may be nil.
type batch struct {
	part *part.Sealed
	held *part.File
	// items is how many objects are held.
	items int
}

func (b *batch) empty() bool { return b.part == nil && b.held == nil }

// seal finishes what is open, if there is anything in it, and starts to make it
// durable while the worker goes on; at most one batch is under way.
func (w *worker) seal() error {
	sealed, err := w.close()
	if err != nil || (sealed.empty() && w.unstored() == 0 && len(w.record.Ranges) < maxRanges) {
		return err
	}
	return w.send(sealed)
}

// flush makes everything durable that was committed so far, and that pages were
// listed which held nothing.
func (w *worker) flush() error {
	sealed, err := w.close()
	if err != nil {
		return err
	}
	if !sealed.empty() || len(w.record.Ranges)+w.unstored()+len(w.record.Volumes) > 0 || w.run.calls.pending() {
		if err := w.send(sealed); err != nil {
			return err
		}
	}
	return w.land()
}

// close finishes what is open.
func (w *worker) close() (b batch, err error) {
	if b.part, err = w.finish(); err != nil {
		return b, err
	}
	open := w.hold
	if open == nil {
		return b, nil
	}
	w.hold = nil
	b.items = open.Items()
	if b.items == 0 { // the page was rolled back
		open.Discard()
		w.run.held.drop(w.holdFile)
		return b, nil
	}
	file, err := open.Finish()
	if err != nil {
		removeFiles(b.part)
		return b, err
	}
	b.held = &file
	return b, nil
}

// finish closes the open part; nil when there is nothing in it.
func (w *worker) finish() (*part.Sealed, error) {
	open := w.open
	w.open = nil
	if open == nil {
		return nil, nil
	}
	if open.Items() == 0 && !w.noted {
		open.Discard()
		return nil, nil
	}
	w.noted = false
	sealed, err := open.Seal()
	if err != nil {
		return nil, fmt.Errorf("seal a part: %w", err)
	}
	return sealed, nil
}

// send starts to make a batch durable; an empty one stands for pages without
// objects.
func (w *worker) send(b batch) error {
	if err := w.land(); err != nil {
		removeFiles(b.part)
		return err
	}
	record := w.record
	record.Namespaces = slices.Sorted(maps.Keys(w.namespaces))
	record.Revisions = w.run.Cut.Revisions()
	if b.held != nil {
		record.Held = &checkpoint.Held{Key: w.key(fmt.Sprintf("h%d", w.id), w.holds), Size: b.held.Size, SHA256: b.held.SHA256, Items: b.items}
	}
	w.record, w.namespaces = checkpoint.Record{}, nil
	flight, n := make(chan error, 1), w.n
	w.flight = flight
	go func() {
		flight <- w.run.safely(func() error { return w.deliver(w.uploads, b, n, record) })
	}()
	return nil
}

// land waits for the upload under way.
func (w *worker) land() error {
	if w.flight == nil {
		return nil
	}
	err := <-w.flight
	w.flight = nil
	return err
}

// deliver uploads a batch, then records it. The file of held objects stays, since
// their actions read it.
func (w *worker) deliver(ctx context.Context, b batch, n int, record checkpoint.Record) error {
	defer removeFiles(b.part)
	if b.part != nil {
		record.Part = w.describe(b.part, n)
	}
	if recordsFirst {
		if err := w.enter(ctx, record); err != nil {
			return err
		}
	}
	if b.held != nil {
		if err := w.create(ctx, record.Held.Key, *b.held); err != nil {
			return err
		}
	}
	if b.part != nil {
		if err := w.upload(ctx, b.part, record.Part); err != nil {
			return err
		}
	}
	failpoint.Hit("backup-runner/part-uploaded")
	if recordsFirst {
		return nil
	}
	err := w.enter(ctx, record)
	if errors.Is(err, journal.ErrFenced) {
		w.withdraw(ctx, &record)
	}
	return err
}

// withdraw removes what no record will ever name: the sweep of the holder that
// closed the epoch may have been there before it. It is best effort.
func (w *worker) withdraw(ctx context.Context, record *checkpoint.Record) {
	keys := []string{record.Part.Key, record.Part.SidecarKey}
	if record.Held != nil {
		keys = append(keys, record.Held.Key)
	}
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := w.run.Store.Delete(ctx, key); err != nil {
			w.run.Log.WarnContext(ctx, "part left behind", "key", key, "error", err)
		}
	}
}

// enter makes it durable that the part is.
func (w *worker) enter(ctx context.Context, record checkpoint.Record) error {
	var upTo int
	record.Outcomes, upTo = w.run.calls.outcomes()
	key, err := w.run.records.Append(ctx, record)
	if err != nil {
		return err
	}
	w.run.calls.recorded(upTo)
	failpoint.Hit("backup-runner/part-recorded")
	w.run.sealed(key, &record.Part)
	return nil
}

// removeFiles is best effort: the job's directory is removed at its end.
func removeFiles(sealed *part.Sealed) {
	if sealed == nil {
		return
	}
	_ = os.Remove(sealed.Data.Path)
	_ = os.Remove(sealed.Sidecar.Path)
}

// describe returns what the record of a part says.
func (w *worker) describe(sealed *part.Sealed, n int) checkpoint.Part {
	key := w.key(fmt.Sprintf("w%d", w.id), n)
	ref := checkpoint.Part{
		SidecarKey: layout.Sidecar(key), SidecarSize: sealed.Sidecar.Size, SidecarSHA256: sealed.Sidecar.SHA256,
		Items: sealed.Items + sealed.Failed, Warnings: sealed.Warnings, Errors: sealed.Errors,
	}
	if sealed.Data.Size > 0 {
		ref.Key, ref.Size, ref.SHA256 = key, sealed.Data.Size, sealed.Data.SHA256
	}
	return ref
}

// key returns the key of the n-th object of a series of this worker.
func (w *worker) key(series string, n int) string {
	b := w.run.Backup
	return layout.Part(b.Name, string(b.UID), w.run.Epoch, series, 1, n)
}

func (w *worker) upload(ctx context.Context, sealed *part.Sealed, ref checkpoint.Part) error {
	if ref.Key != "" {
		failpoint.Hit("backup-runner/part-sealed")
		if err := w.create(ctx, ref.Key, sealed.Data); err != nil {
			return err
		}
		failpoint.Hit("backup-runner/part-without-sidecar")
	}
	return w.create(ctx, ref.SidecarKey, sealed.Sidecar)
}

func (w *worker) create(ctx context.Context, key string, f part.File) (err error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := w.run.Store.Create(ctx, key, file, f.Size); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	return nil
}
