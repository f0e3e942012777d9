package sweep

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// directoryUsage is what uncached reads show of parts, records or a directory.
type directoryUsage int

const (
	inUse          directoryUsage = iota // or not ours, or unknown
	leftoverOfDone                       // its object has ended
	leftoverOfGone                       // its object is gone
	abandoned                            // the whole directory: its object is gone and left no velero-backup.json
)

// objectStage is how far the object of a UID is.
type objectStage int

const (
	gone objectStage = iota
	live
	done // a terminal phase, which never changes
)

// selectByName selects objects of one name in all namespaces: two installations in one cluster may share
// a bucket.
func selectByName(name string) client.ListOption { return client.MatchingFields{"metadata.name": name} }

// usageInspector decides from uncached reads: whose a directory of a location is and whether it is a
// leftover.
type usageInspector struct {
	reader  client.Reader // uncached
	store   objectstore.Store
	cluster string // UID of this cluster
}

// backupStages reads the Backups of that name.
func (j *usageInspector) backupStages(ctx context.Context, name string) (map[types.UID]objectStage, error) {
	var list velerov1.BackupList
	if err := j.reader.List(ctx, &list, selectByName(name)); err != nil {
		return nil, fmt.Errorf("look for backup %q: %w", name, err)
	}
	stages := make(map[types.UID]objectStage, len(list.Items))
	for i := range list.Items {
		b := &list.Items[i]
		stages[b.UID] = live
		// What a backup in deletion has is the deletion's, and the records of post hooks that are owed are a runner's.
		if b.Status.Phase.Terminal() && b.Status.Phase != velerov1.BackupPhaseDeleting && !mark.PostHooksOf(b).Owed {
			stages[b.UID] = done
		}
	}
	return stages, nil
}

// inspectParts decides about the parts of one object. It reads the owner before the cluster: the object
// that reserved the directory existed before that.
func (j *usageInspector) inspectParts(ctx context.Context, name, uid string) (directoryUsage, error) {
	own, err := j.readDirOwner(ctx, name)
	if err != nil || own.kind != oursKind {
		return inUse, err
	}
	stages, err := j.backupStages(ctx, name)
	if err != nil {
		return inUse, err
	}
	switch stages[types.UID(uid)] {
	case live:
		return inUse, nil
	case done:
		return leftoverOfDone, nil
	}
	if uid != own.uid {
		return leftoverOfGone, nil
	}
	committed, err := objectstore.Exists(ctx, j.store, layout.BackupMetadata(name))
	switch {
	case err != nil:
		return inUse, err
	case !committed:
		return abandoned, nil
	}
	return leftoverOfGone, nil
}

// inspectDirectory decides whether everything in the directory was left by the Backup with that UID.
// While another of that name is on its way the directory is left to its runner.
func (j *usageInspector) inspectDirectory(ctx context.Context, name, uid string) (directoryUsage, error) {
	own, err := j.readDirOwner(ctx, name)
	if err != nil || own.kind != oursKind || own.uid != uid {
		return inUse, err
	}
	stages, err := j.backupStages(ctx, name)
	if err != nil {
		return inUse, err
	}
	if _, exists := stages[types.UID(uid)]; exists {
		return inUse, nil
	}
	for _, s := range stages {
		if s == live {
			return inUse, nil
		}
	}
	committed, err := objectstore.Exists(ctx, j.store, layout.BackupMetadata(name))
	if committed || err != nil {
		return inUse, err
	}
	return abandoned, nil
}

// inspectRecords decides about the recorded outcomes of a Restore. They are leftovers only with an owner
// file of this cluster, or a Restore of this cluster with that UID that has ended: a runner that was
// paused may write a record after the owner file was swept. A restore that left objects paused needs
// its records to resume them.
func (j *usageInspector) inspectRecords(ctx context.Context, r restoreRecords) (directoryUsage, error) {
	own, err := j.restoreOwner(ctx, r.name, r.uid)
	if err != nil || own.kind != oursKind && own.kind != noneKind {
		return inUse, err
	}
	var list velerov1.RestoreList
	if err := j.reader.List(ctx, &list, selectByName(r.name)); err != nil {
		return inUse, fmt.Errorf("look for restore %q: %w", r.name, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.UID == types.UID(r.uid) {
			if o.Status.Phase.Terminal() && mark.PausedLocation(o) == "" {
				return leftoverOfDone, nil
			}
			return inUse, nil
		}
	}
	if own.kind == noneKind {
		return inUse, nil
	}
	return leftoverOfGone, nil
}
