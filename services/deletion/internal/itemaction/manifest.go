package itemaction

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// batchItems is how many items are read from the manifest at once. No connection stays open while
// actions work, which may take hours.
const batchItems = 1000

// openManifest opens the manifest. Without one, and with a damaged one, the tarball is read from its start.
func (w *attempt) openManifest(ctx context.Context) error {
	m, err := tarball.OpenManifest(ctx, w.job.Store, w.job.Backup.Name)
	switch {
	case errors.Is(err, manifest.ErrCorrupt):
		w.log.Warn("Manifest is damaged; reading the tarball instead", "error", err)
		return nil
	case errors.Is(err, objectstore.ErrNotFound):
		return nil
	}
	w.manifest = m
	return err
}

// byManifest shows the items of the resources that an action applies to, each read from the tarball
// by range.
func (w *attempt) byManifest(ctx context.Context) error {
	kinds := w.wantedKinds()
	if len(kinds) == 0 {
		return nil
	}
	src, err := tarball.FromManifest(ctx, w.job.Store, w.job.Backup.Name, tarball.Limits{})
	if errors.Is(err, tarball.ErrMismatch) {
		w.log.Warn("Manifest does not match the tarball; reading the tarball instead", "error", err)
		return w.byTarball(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it holds nothing but memory
	for filter := (manifest.Filter{Kinds: kinds}); ; {
		batch, err := w.nextBatch(ctx, filter)
		if err != nil {
			return err
		}
		for i := range batch {
			it := newBackupItem(&batch[i])
			it.body = func(ctx context.Context) ([]byte, error) { return src.Read(ctx, batch[i]) }
			if err := w.callItemActions(ctx, &it); err != nil {
				return err
			}
		}
		if len(batch) < batchItems {
			return nil
		}
		last := batch[len(batch)-1].Key()
		filter.After = &last
	}
}

// wantedKinds returns the kinds that an action may want, each resource once: in its preferred version.
func (w *attempt) wantedKinds() []string {
	var kinds []string
	for _, k := range w.manifest.Kinds() {
		gr := schema.ParseGroupResource(k.Resource)
		for _, a := range w.bound {
			if k.Preferred && a.Resource(gr) {
				kinds = append(kinds, k.Kind)
				break
			}
		}
	}
	return kinds
}

// nextBatch returns the next items that an action wants.
func (w *attempt) nextBatch(ctx context.Context, f manifest.Filter) ([]manifest.Item, error) {
	var batch []manifest.Item
	for m, err := range w.manifest.Items(ctx, f) {
		if err != nil {
			return nil, err
		}
		it := newBackupItem(&m)
		if len(w.pendingActions(&it)) == 0 {
			continue
		}
		if batch = append(batch, m); len(batch) == batchItems {
			break
		}
	}
	return batch, nil
}

func newBackupItem(m *manifest.Item) backupItem {
	return backupItem{
		path: m.Path, resource: schema.GroupResource{Group: m.Group, Resource: m.Resource}, namespace: m.Namespace, labels: labels.Set(m.Labels),
	}
}
