package partwriter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// partBatch is what a writer makes durable at once. Either file may be nil.
type partBatch struct {
	part   *part.Sealed
	spool  *part.File
	record checkpoint.Record
}

// Seal finishes what is open, if there is anything in it, and starts to make it durable while the
// caller continues; at most one batch is under way.
func (w *Writer) Seal() error {
	sealed, err := w.closeOpen()
	if err != nil || (sealed.isEmpty() && w.countUnstored() == 0 && len(w.Record.Ranges) < MaxRanges) {
		return err
	}
	return w.sendClosed(sealed)
}

// Flush makes everything durable that was committed so far, and that pages were listed which held
// nothing.
func (w *Writer) Flush() error {
	sealed, err := w.closeOpen()
	if err != nil {
		return err
	}
	if !sealed.isEmpty() || len(w.Record.Ranges)+w.countUnstored()+len(w.Record.Volumes)+len(w.Record.HooksEnded) > 0 || w.cfg.Records.Pending() {
		if err := w.sendClosed(sealed); err != nil {
			return err
		}
	}
	return w.awaitUpload()
}

// closedFiles is what close finished.
type closedFiles struct {
	part  *part.Sealed
	spool *part.File
	// items is how many objects are in the spool.
	items int
}

func (c *closedFiles) isEmpty() bool { return c.part == nil && c.spool == nil }

// closeOpen finishes what is open.
func (w *Writer) closeOpen() (c closedFiles, err error) {
	if c.part, err = w.finishPart(); err != nil {
		return c, err
	}
	open := w.spool
	if open == nil {
		return c, nil
	}
	w.spool = nil
	c.items = open.Items()
	if c.items == 0 { // the page was rolled back
		open.Discard()
		w.cfg.Spools.Drop(w.spoolFile)
		return c, nil
	}
	file, err := open.Finish()
	if err != nil {
		removeFiles(c.part)
		return c, err
	}
	c.spool = &file
	return c, nil
}

// finishPart closes the open part; nil when there is nothing in it.
func (w *Writer) finishPart() (*part.Sealed, error) {
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

// sendClosed starts to make durable what was closed; without files it is pages without objects.
func (w *Writer) sendClosed(c closedFiles) error {
	if err := w.awaitUpload(); err != nil {
		removeFiles(c.part)
		return err
	}
	b := partBatch{part: c.part, spool: c.spool, record: w.Record}
	b.record.Namespaces = slices.Sorted(maps.Keys(w.namespaces))
	b.record.Revisions = w.cfg.Revisions()
	if w.cfg.PostOperation != nil {
		b.record.PostOperation = w.cfg.PostOperation()
	}
	if c.spool != nil {
		b.record.Spool = &checkpoint.Spool{Key: w.cfg.objectKey("h", w.id, w.spools), Size: c.spool.Size, SHA256: c.spool.SHA256, Items: c.items}
	}
	if c.part != nil {
		b.record.Part = describePart(c.part, w.cfg.objectKey("w", w.id, w.n))
	}
	w.Record, w.namespaces = checkpoint.Record{}, nil
	flight := make(chan error, 1)
	w.flight = flight
	go func() { flight <- panics.Catch(func() error { return w.cfg.deliverBatch(w.uploads, &b) }) }()
	return nil
}

// awaitUpload waits for the upload under way.
func (w *Writer) awaitUpload() error {
	if w.flight == nil {
		return nil
	}
	err := <-w.flight
	w.flight = nil
	return panics.Raise(err)
}
