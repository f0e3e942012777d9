package restore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
)

// Snapshotters opens the snapshotters of VolumeSnapshotLocations; nativesnapshot.Opener is one.
type Snapshotters interface {
	Open(ctx context.Context, location string) (action.VolumeSnapshotter, error)
}

// errVolumeUnclear is what is known of a volume that an earlier holder was about to make.
var errVolumeUnclear = errors.New("the runner ended around CreateVolumeFromSnapshot, which is not called again: the provider may have a volume of this snapshot that nobody uses")

// provision makes the volume of a PersistentVolume of which the backup has a native snapshot, and
// points the object, which is about to be created, at it. One that is in the cluster already, and
// stays there, keeps its volume.
func (r *run) provision(ctx context.Context, it *object.Object) error {
	if r.Plan.Kind(it.Node).String() != "persistentvolumes" {
		return nil
	}
	snapshot, ok := r.Volumes.Snapshot(r.Plan.Node(it.Node).Name)
	if !ok {
		return nil
	}
	err := r.fromSnapshot(ctx, it, &snapshot)
	if err != nil {
		return fmt.Errorf("volume from snapshot %q: %w", snapshot.Status.ProviderSnapshotID, err)
	}
	return nil
}

func (r *run) fromSnapshot(ctx context.Context, it *object.Object, s *nativesnapshot.Snapshot) error {
	stored := r.Plan.Node(it.Node).Name
	if err := r.name(ctx, it); err != nil {
		return err
	}
	there, err := r.existingVolume(ctx, it)
	it.Exists = there
	switch {
	case err != nil:
		return err
	case there && it.Renamed != "" && r.names.Volume(stored) != it.Renamed: // the records of who made it are gone
		return r.recorded(ctx, it, &outcome.Volume{Location: s.Spec.Location, Snapshot: s.Status.ProviderSnapshotID})
	case there:
		return nil
	}
	if r.Snapshotters == nil {
		return errors.New("there are no plugins")
	}
	by, err := r.ready(ctx, s.Spec.Location)
	if err != nil {
		return err
	}
	made, err := r.volume(ctx, it, by, s)
	if err != nil {
		return err
	}
	return r.point(ctx, it, by, &made)
}

// ready opens a location and brings up what its calls need: a call that is announced and then not
// made costs the volume. When the restore is to stop, nothing was begun.
func (r *run) ready(ctx context.Context, location string) (by action.VolumeSnapshotter, err error) {
	ctx, done := stop.Signal(r.Stop).Context(ctx)
	defer done()
	dispatch.Aside(ctx, func() {
		if by, err = r.Snapshotters.Open(ctx, location); err != nil {
			return
		}
		if p, ok := by.(action.Preparer); ok {
			err = p.Prepare(ctx)
		}
	})
	if stop.Signal(r.Stop).Requested() {
		return nil, dispatch.ErrStopped
	}
	return by, err
}

// volume makes the volume, once per restore whoever holds it.
func (r *run) volume(ctx context.Context, it *object.Object, by action.VolumeSnapshotter, s *nativesnapshot.Snapshot) (made outcome.Volume, err error) {
	made = r.planned(it, s)
	switch before := r.before(it.Node); {
	case before != nil && before.ID != "":
		return *before, nil // under a name that may have been taken since: point records another
	case before != nil, r.History.Blind:
		return made, errVolumeUnclear
	}
	if r.Confirm != nil {
		if err := r.Confirm(ctx); err != nil {
			return made, err
		}
	}
	if err := r.recorded(ctx, it, &made); err != nil {
		return made, err
	}
	what := action.Volume{Type: made.Type, IOPS: made.IOPS}
	dispatch.Aside(ctx, func() { made.ID, err = by.CreateVolume(ctx, made.Snapshot, made.Zone, what) })
	switch {
	case err != nil:
		return made, err
	case made.ID == "":
		return made, fmt.Errorf("VolumeSnapshotLocation %q: CreateVolumeFromSnapshot: the plugin answered without the id of a volume", s.Spec.Location)
	}
	r.Recorder.Info(it.Node, fmt.Sprintf("volume %q made of snapshot %q", made.ID, made.Snapshot))
	return made, r.recorded(ctx, it, &made)
}

// before is what is known of the volume of an object: an earlier holder made it, or this one did
// before the object had to wait.
func (r *run) before(node int32) *outcome.Volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	if made := r.made[node]; made != nil {
		return made
	}
	return r.History.Volumes[node]
}

// planned is the volume before it is made; recorded gives it its name.
func (r *run) planned(it *object.Object, s *nativesnapshot.Snapshot) outcome.Volume {
	v := outcome.Volume{
		Location: s.Spec.Location, Snapshot: s.Status.ProviderSnapshotID,
		Type: s.Spec.VolumeType, Zone: s.Spec.VolumeAZ, IOPS: ptr.Deref(s.Spec.VolumeIOPS, 0),
	}
	v.ClaimNamespace, v.Claim = r.Volumes.Claim(r.Plan.Node(it.Node).Name)
	v.ClaimNamespace = r.Plan.MapNamespace(v.ClaimNamespace)
	return v
}

// point makes the object one of that volume. The plugin gets it under the name in the backup and
// may give it another one, unless one is recorded.
func (r *run) point(ctx context.Context, it *object.Object, by action.VolumeSnapshotter, made *outcome.Volume) (err error) {
	stored := r.Plan.Node(it.Node).Name
	var changed *action.Object
	dispatch.Aside(ctx, func() { changed, err = by.SetVolumeID(ctx, action.FromContent(object.Named(it.Body, stored)), made.ID) })
	if err != nil {
		return fmt.Errorf("volume %q: %w", made.ID, err)
	}
	name, err := nameOf(changed)
	if err != nil {
		return fmt.Errorf("volume %q: plugin %s: SetVolumeID: %w", made.ID, by.Name(), err)
	}
	if err := r.loader.Check(it, "plugin "+by.Name()+": SetVolumeID", changed, name); err != nil {
		return fmt.Errorf("volume %q: %w", made.ID, err)
	}
	if err := r.loader.Replace(it, changed); err != nil {
		return err
	}
	if name == stored || r.History.Names[it.Node] != "" {
		name = it.Renamed
	}
	if name == "" {
		return nil
	}
	it.Rename(name, stored)
	if made.Name == name {
		return nil
	}
	return r.recorded(ctx, it, made)
}
