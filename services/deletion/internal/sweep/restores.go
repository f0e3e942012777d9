package sweep

import (
	"context"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// restoreRecords names the recorded outcomes of one Restore object.
type restoreRecords struct{ name, uid string }

// recordsOf returns whose record a key under restores/ is.
func recordsOf(key string) (restoreRecords, bool) {
	name, ok := layout.RestoreName(key)
	if !ok {
		return restoreRecords{}, false
	}
	rest, ok := strings.CutPrefix(key, layout.RestoreRecordsPrefix(name))
	if !ok {
		return restoreRecords{}, false
	}
	uid, _, ok := strings.Cut(rest, "/")
	return restoreRecords{name, uid}, ok && uid != "" && layout.CheckName(name) == nil
}

// sweepRestores checks every restore with records in one list, as a stream.
func (p *sweepPass) sweepRestores(ctx context.Context) error {
	var last restoreRecords
	return p.store.List(ctx, layout.RestoresDir, func(i objectstore.Info) error {
		r, ok := recordsOf(i.Key)
		if !ok || r == last {
			return nil
		}
		last = r
		return p.noteOutcome(ctx, layout.RestoreRecords(r.name, r.uid), p.sweepRestore(ctx, r))
	})
}

// sweepRestore removes the records of one Restore, if it needs them no more.
func (p *sweepPass) sweepRestore(ctx context.Context, r restoreRecords) error {
	dir, key := layout.RestoreRecords(r.name, r.uid), layout.RestoreOwnerFile(r.name, r.uid)
	own, err := p.inspector.restoreOwner(ctx, r.name, r.uid)
	if err != nil {
		return err
	}
	usage, err := p.inspector.inspectRecords(ctx, r)
	if err != nil {
		return err
	}
	if own.kind != noneKind || usage != leftoverOfDone {
		if !p.isOwnDirectory(own, dir) {
			return nil
		}
	}
	if usage != leftoverOfDone && (usage != leftoverOfGone || !p.goneLongEnough(dir)) {
		return nil
	}
	p.log.Info("Removing the records of a restore that no longer needs them", "restore", r.name, "uid", r.uid)
	leftover := func(ctx context.Context) (bool, error) {
		now, err := p.inspector.inspectRecords(ctx, r)
		return now != inUse, err
	}
	if ok, err := p.remover.emptyPrefix(ctx, dir, key, leftover); !ok || err != nil {
		return err
	}
	if err := p.remover.abortUploads(ctx, dir, func(objectstore.Upload) (bool, error) { return leftover(ctx) }); err != nil {
		return err
	}
	return p.remover.removeOwner(ctx, key, leftover)
}
