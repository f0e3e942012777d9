package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxUIDs bounds how many objects of one name are looked at in one pass.
const maxUIDs = 100

// backupDirectory is what one list showed of a backup's directory.
type backupDirectory struct {
	name            string
	owned, metadata bool
	uids            []string // with parts
}

// sweepBackups checks every directory of backups/ in one list, as a stream.
func (p *sweepPass) sweepBackups(ctx context.Context) error {
	var dir backupDirectory
	err := p.store.List(ctx, layout.BackupsDir, func(i objectstore.Info) error {
		name, ok := layout.BackupName(i.Key)
		if !ok {
			return nil
		}
		if name != dir.name {
			if err := p.noteOutcome(ctx, dir.name, p.sweepBackup(ctx, &dir)); err != nil {
				return err
			}
			dir = backupDirectory{name: name}
		}
		dir.addKey(i.Key)
		return nil
	})
	if err != nil {
		return err
	}
	return p.noteOutcome(ctx, dir.name, p.sweepBackup(ctx, &dir))
}

func (d *backupDirectory) addKey(key string) {
	switch key {
	case layout.OwnerFile(d.name):
		d.owned = true
		return
	case layout.BackupMetadata(d.name):
		d.metadata = true
		return
	}
	rest, ok := strings.CutPrefix(key, layout.PartsDir(d.name))
	if !ok {
		return
	}
	uid, _, ok := strings.Cut(rest, "/")
	if ok && uid != "" && !slices.Contains(d.uids, uid) && len(d.uids) < maxUIDs {
		d.uids = append(d.uids, uid)
	}
}

// sweepBackup removes what is left in one directory.
func (p *sweepPass) sweepBackup(ctx context.Context, d *backupDirectory) error {
	if d.name == "" || d.metadata && len(d.uids) == 0 || layout.CheckName(d.name) != nil {
		return nil // nothing there, a finished backup, or of an unknown owner
	}
	if d.owned {
		own, err := p.inspector.readDirOwner(ctx, d.name)
		if err != nil || !p.isOwnDirectory(own, d.name) {
			return err
		}
	} else {
		p.count.unowned++
	}
	for _, uid := range d.uids {
		if err := p.sweepParts(ctx, d.name, uid); err != nil {
			return err
		}
	}
	if !d.owned {
		return nil
	}
	return p.wholeDirectory(ctx, d.name)
}

// sweepParts removes the parts of one object, if it needs them no more. The directory's owner is looked
// at when the rest is.
func (p *sweepPass) sweepParts(ctx context.Context, name, uid string) error {
	usage, err := p.inspector.inspectParts(ctx, name, uid)
	if err != nil || usage == inUse || usage == abandoned {
		return err
	}
	if usage == leftoverOfGone && !p.goneLongEnough(layout.PartsPrefix(name, uid)) {
		return nil
	}
	p.log.Info("Removing the parts of a backup that no longer needs them", "backup", name, "uid", uid)
	_, err = p.remover.emptyPrefix(ctx, layout.PartsPrefix(name, uid), "", func(ctx context.Context) (bool, error) {
		now, err := p.inspector.inspectParts(ctx, name, uid)
		return now == usage, err
	})
	return err
}

// wholeDirectory removes a directory that was reserved for a Backup which is gone and never
// committed anything.
func (p *sweepPass) wholeDirectory(ctx context.Context, name string) error {
	own, err := p.inspector.readDirOwner(ctx, name)
	if err != nil || own.kind != oursKind {
		return err
	}
	leftover := func(ctx context.Context) (bool, error) {
		now, err := p.inspector.inspectDirectory(ctx, name, own.uid)
		return now == abandoned, err
	}
	ok, err := leftover(ctx)
	as := layout.PartsPrefix(name, own.uid) + " (abandoned)" // the directory may be another one's by the next pass
	if !ok || err != nil || !p.goneLongEnough(as) {
		return err
	}
	p.log.Info("Removing the directory of a backup that is gone and was never finished", "backup", name, "uid", own.uid)
	// Snapshots first: without the owner file they could not be found.
	if err := p.sweeper.CSI.End(ctx, csisnapshot.Owner{Name: name, UID: types.UID(own.uid)}, func(types.NamespacedName) bool { return false }); err != nil {
		return fmt.Errorf("remove the CSI snapshots of backup %q: %w", name, err)
	}
	key := layout.OwnerFile(name)
	if ok, err = p.remover.emptyPrefix(ctx, layout.BackupDir(name), key, leftover); !ok || err != nil {
		return err
	}
	if err := p.remover.abortUploads(ctx, layout.BackupDir(name), func(objectstore.Upload) (bool, error) { return leftover(ctx) }); err != nil {
		return err
	}
	return p.remover.removeOwner(ctx, key, leftover)
}
