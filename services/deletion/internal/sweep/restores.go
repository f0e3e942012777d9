package sweep

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// records names the recorded outcomes of one Restore object.
type records struct{ name, uid string }

// recordsOf returns whose record a key under restores/ is.
func recordsOf(key string) (records, bool) {
	name, ok := layout.RestoreName(key)
	if !ok {
		return records{}, false
	}
	rest, ok := strings.CutPrefix(key, layout.RestoreRecordsPrefix(name))
	if !ok {
		return records{}, false
	}
	uid, _, ok := strings.Cut(rest, "/")
	return records{name, uid}, ok && uid != "" && layout.CheckName(name) == nil
}

// restores looks at every restore with records in one list, as a stream.
func (p *pass) restores(ctx context.Context) error {
	var last records
	return p.store.List(ctx, layout.RestoresDir, func(i objectstore.Info) error {
		r, ok := recordsOf(i.Key)
		if !ok || r == last {
			return nil
		}
		last = r
		return p.settle(ctx, layout.RestoreRecords(r.name, r.uid), p.restore(ctx, r))
	})
}

// restore removes the records of one Restore, if it needs them no more.
func (p *pass) restore(ctx context.Context, r records) error {
	dir := layout.RestoreRecords(r.name, r.uid)
	own, err := p.restoreOwner(ctx, r.name, r.uid)
	if err != nil {
		return err
	}
	verdict, err := p.judgeRecords(ctx, r)
	if err != nil {
		return err
	}
	if own.kind != nobodyKind || verdict != leftoverOfDone {
		if !p.ours(own, dir) {
			return nil
		}
	}
	if verdict == inUse || verdict == leftoverOfGone && !p.goneLongEnough(dir) {
		return err
	}
	p.log.Info("removing the records of a restore that needs them no more", "restore", r.name, "uid", r.uid)
	leftover := func(ctx context.Context) (bool, error) {
		now, err := p.judgeRecords(ctx, r)
		return now != inUse, err
	}
	key := layout.RestoreOwnerFile(r.name, r.uid)
	if ok, err := p.empty(ctx, dir, key, leftover); !ok || err != nil {
		return err
	}
	if err := p.sweepUploads(ctx, dir, func(objectstore.Upload) (bool, error) { return leftover(ctx) }); err != nil {
		return err
	}
	return p.removeOwner(ctx, key, leftover)
}

// judgeRecords wants an owner file of this cluster, or a Restore of this cluster with that UID that
// has ended: a runner that was paused may write a record after the owner file was swept.
func (p *pass) judgeRecords(ctx context.Context, r records) (verdict, error) {
	own, err := p.restoreOwner(ctx, r.name, r.uid)
	if err != nil || own.kind != oursKind && own.kind != nobodyKind {
		return inUse, err
	}
	var list velerov1.RestoreList
	if err := p.Reader.List(ctx, &list, byName(r.name)); err != nil {
		return inUse, fmt.Errorf("look for restore %q: %w", r.name, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.UID == types.UID(r.uid) {
			if o.Status.Phase.Terminal() {
				return leftoverOfDone, nil
			}
			return inUse, nil
		}
	}
	if own.kind == nobodyKind {
		return inUse, nil
	}
	return leftoverOfGone, nil
}
