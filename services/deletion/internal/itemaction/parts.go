package itemaction

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// locateObjects finds where the objects of the backup are: in its tarball, or in the parts of a backup
// that ended before it had one.
func (w *attempt) locateObjects(ctx context.Context) (found bool, err error) {
	w.tarball, err = objectstore.Exists(ctx, w.job.Store, layout.BackupTarball(w.job.Backup.Name))
	if err != nil || w.tarball || !w.job.Parts {
		return w.tarball, err
	}
	type part struct {
		key   string
		epoch int64
	}
	var parts []part
	name, uid := w.job.Backup.Name, w.job.UID
	err = w.job.Store.List(ctx, layout.PartsPrefix(name, uid), func(i objectstore.Info) error {
		if epoch, ok := layout.PartEpoch(name, uid, i.Key); ok {
			parts = append(parts, part{i.Key, epoch})
		}
		return nil
	})
	// What a later holder wrote comes first: an object in several parts is shown as it was stored
	// last.
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.epoch, a.epoch), cmp.Compare(b.key, a.key)) })
	for _, p := range parts {
		w.parts = append(w.parts, p.key)
	}
	return len(parts) > 0, err
}

// byParts shows the items of a backup that was never composed. One that is in several parts,
// because its unit was collected again, is shown once.
func (w *attempt) byParts(ctx context.Context) error {
	w.record.remembers = true
	for _, key := range w.parts {
		err := w.readThrough(ctx, key, tarball.ListPart)
		if isDamaged(err) {
			w.failed.addError(err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
