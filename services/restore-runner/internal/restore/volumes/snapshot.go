package volumes

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
)

// errVolumeUnclear is what is known of a volume that an earlier holder was about to make.
var errVolumeUnclear = errors.New("the runner ended around CreateVolumeFromSnapshot, which is not called again: the provider may have an unused volume of this snapshot")

// Provision makes the volume of a PersistentVolume of which the backup has a native snapshot, and
// points the object, which is about to be created, at it. One that is in the cluster already, and
// stays there, keeps its volume.
func (p *Provisioner) Provision(ctx context.Context, e *outcome.Entry, o *object.Object) error {
	if p.Plan.Kind(o.Node).String() != "persistentvolumes" {
		return nil
	}
	snapshot, ok := p.Volumes.Snapshot(p.Plan.Name(o.Node))
	if !ok {
		return nil
	}
	err := p.fromSnapshot(ctx, e, o, &snapshot)
	if err != nil {
		return fmt.Errorf("volume from snapshot %q: %w", snapshot.Status.ProviderSnapshotID, err)
	}
	return nil
}

func (p *Provisioner) fromSnapshot(ctx context.Context, e *outcome.Entry, o *object.Object, s *nativesnapshot.Snapshot) error {
	stored := p.Plan.Name(o.Node)
	if err := p.chooseName(ctx, o); err != nil {
		return err
	}
	there, err := p.volumeExists(ctx, o)
	o.Exists = there
	switch {
	case err != nil:
		return err
	case there && o.Renamed != "" && p.Names.Volume(stored) != o.Renamed: // the records of who made it are gone
		return p.recordVolume(ctx, o, &outcome.Volume{Location: s.Spec.Location, Snapshot: s.Status.ProviderSnapshotID})
	case there:
		return nil
	case p.DryRun:
		e.Info(fmt.Sprintf("its volume would be made of snapshot %q", s.Status.ProviderSnapshotID))
		return nil
	}
	if p.Snapshotters == nil {
		return errors.New("there are no plugins")
	}
	by, err := p.openSnapshotter(ctx, s.Spec.Location)
	if err != nil {
		return err
	}
	made, err := p.makeVolume(ctx, o, by, s)
	if err != nil {
		return err
	}
	return p.pointToVolume(ctx, o, by, &made)
}

// openSnapshotter opens a location and brings up what its calls need: a call that is announced and then not
// made costs the volume. When the restore is to stop, nothing was begun.
func (p *Provisioner) openSnapshotter(ctx context.Context, location string) (by action.VolumeSnapshotter, err error) {
	ctx, done := p.Stop.Context(ctx)
	defer done()
	dispatch.RunOutsideLimit(ctx, func() {
		if by, err = p.Snapshotters.Open(ctx, location); err != nil {
			return
		}
		if preparer, ok := by.(action.Preparer); ok {
			err = preparer.Prepare(ctx)
		}
	})
	if p.Stop.Requested() {
		return nil, dispatch.ErrStopped
	}
	return by, err
}

// makeVolume makes the volume, once per restore even after a takeover.
func (p *Provisioner) makeVolume(ctx context.Context, o *object.Object, by action.VolumeSnapshotter, s *nativesnapshot.Snapshot) (made outcome.Volume, err error) {
	made = p.plannedVolume(o, s)
	switch before := p.earlierVolume(o.Node); {
	case before != nil && before.ID != "":
		return *before, nil // under a name that may have been taken since: point records another
	case before != nil, p.History.NoHistory:
		return made, errVolumeUnclear
	}
	if p.Confirm != nil {
		if err := p.Confirm(ctx); err != nil {
			return made, err
		}
	}
	if err := p.recordVolume(ctx, o, &made); err != nil {
		return made, err
	}
	what := action.Volume{Type: made.Type, IOPS: made.IOPS}
	dispatch.RunOutsideLimit(ctx, func() { made.ID, err = by.CreateVolume(ctx, made.Snapshot, made.Zone, what) })
	switch {
	case err != nil:
		return made, err
	case made.ID == "":
		return made, fmt.Errorf("VolumeSnapshotLocation %q: CreateVolumeFromSnapshot: the plugin answered without the id of a volume", s.Spec.Location)
	}
	p.Recorder.Info(o.Node, fmt.Sprintf("volume %q made of snapshot %q", made.ID, made.Snapshot))
	return made, p.recordVolume(ctx, o, &made)
}

// earlierVolume is what is known of the volume of an object: an earlier holder made it, or this one did
// before the object had to wait.
func (p *Provisioner) earlierVolume(node int32) *outcome.Volume {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made := p.made[node]; made != nil {
		return made
	}
	return p.History.Volumes[node]
}

// plannedVolume is the volume before it is made; record gives it its name.
func (p *Provisioner) plannedVolume(o *object.Object, s *nativesnapshot.Snapshot) outcome.Volume {
	v := outcome.Volume{
		Location: s.Spec.Location, Snapshot: s.Status.ProviderSnapshotID,
		Type: s.Spec.VolumeType, Zone: s.Spec.VolumeAZ, IOPS: ptr.Deref(s.Spec.VolumeIOPS, 0),
	}
	v.ClaimNamespace, v.Claim = p.Volumes.Claim(p.Plan.Name(o.Node))
	v.ClaimNamespace = p.Plan.MapNamespace(v.ClaimNamespace)
	return v
}

// pointToVolume makes the object one of that volume. The plugin gets it under the name in the backup and
// may give it another one, unless one is recorded.
func (p *Provisioner) pointToVolume(ctx context.Context, o *object.Object, by action.VolumeSnapshotter, made *outcome.Volume) (err error) {
	stored := p.Plan.Name(o.Node)
	var changed *action.Object
	dispatch.RunOutsideLimit(ctx, func() { changed, err = by.SetVolumeID(ctx, action.FromContent(object.Named(o.Body, stored)), made.ID) })
	if err != nil {
		return fmt.Errorf("volume %q: %w", made.ID, err)
	}
	name, err := nameOf(changed)
	if err != nil {
		return fmt.Errorf("volume %q: plugin %s: SetVolumeID: %w", made.ID, by.Name(), err)
	}
	if err := p.Loader.Check(o, "plugin "+by.Name()+": SetVolumeID", changed, name); err != nil {
		return fmt.Errorf("volume %q: %w", made.ID, err)
	}
	if err := p.Loader.Replace(ctx, o, changed); err != nil {
		return err
	}
	if name == stored || p.History.Names[o.Node] != "" {
		name = o.Renamed
	}
	if name == "" {
		return nil
	}
	o.Rename(name, stored)
	if made.Name == name {
		return nil
	}
	return p.recordVolume(ctx, o, made)
}

// nameOf returns the name of an object that a plugin made, which must have one.
func nameOf(o *action.Object) (string, error) {
	if o == nil {
		return "", errors.New("returned no object")
	}
	content, err := o.Content()
	if err != nil {
		return "", err
	}
	name := object.TextAt(object.MapAt(content, "metadata"), "name")
	if name == "" {
		return "", errors.New("metadata.name: missing")
	}
	return name, nil
}
