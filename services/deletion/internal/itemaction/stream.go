package itemaction

import (
	"context"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// byTarball shows the items of a tarball that has no manifest in one pass over it. A connection that
// breaks, as one does whose other end waits for hours while actions work, is opened again for as long as
// there is progress.
func (w *attempt) byTarball(ctx context.Context) error {
	for p := (archivePass{attempt: w, key: layout.BackupTarball(w.job.Backup.Name)}); ; {
		before := p.passed
		err := p.readArchive(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.stop != nil:
			return p.stop
		case err == nil || isDamaged(err) || p.passed == before:
			return err
		}
		w.log.Info("Reading of the tarball was interrupted; resuming", "key", p.key, "entries", p.passed, "error", err)
	}
}

// archivePass is one reading of an archive.
type archivePass struct {
	*attempt
	key    string
	passed int   // entries that earlier passes and this one are done with
	seen   int   // entries of this one
	stop   error // ends the attempt
}

func (p *archivePass) readArchive(ctx context.Context) error {
	in, err := p.job.Store.Get(ctx, p.key)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	p.seen = 0
	return tarball.List(ctx, in, tarball.Limits{}, tarball.Visitor{
		Entry:   func(e tarball.Entry) error { return p.handleEntry(ctx, e) },
		Problem: p.noteProblem,
	})
}

// noteProblem is an entry that is passed over. What is no object needs no action; an object that is too
// large may have needed one.
func (p *archivePass) noteProblem(x tarball.Problem) {
	p.seen++
	if p.seen <= p.passed {
		return
	}
	p.passed = p.seen
	if errors.Is(x.Err, tarball.ErrTooLarge) {
		p.failed.addError(x.Err)
		return
	}
	p.log.Debug("Entry of the tarball is not an object; skipping the entry", "path", x.Path, "error", x.Err)
}

func (p *archivePass) handleEntry(ctx context.Context, e tarball.Entry) error {
	p.seen++
	if p.seen <= p.passed {
		return nil
	}
	it := backupItem{
		path: e.TarName, resource: schema.GroupResource{Group: e.Group, Resource: e.Resource}, namespace: e.Namespace, unread: true,
	}
	if e.Version == "" && len(p.pendingActions(&it)) > 0 { // the others are further copies
		body, err := io.ReadAll(e.Body)
		if err != nil {
			return err
		}
		it.body = func(context.Context) ([]byte, error) { return body, nil }
		if p.stop = p.callItemActions(ctx, &it); p.stop != nil {
			return p.stop
		}
	}
	p.passed = p.seen
	return nil
}
