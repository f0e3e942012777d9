package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// Tags of a snapshot beside the backup's labels (Velero 1.18).
const (
	TagBackup = "velero.io/backup"
	TagVolume = "velero.io/pv"
)

// SnapshotLocations opens the snapshotters of VolumeSnapshotLocations; nativesnapshot.Opener is one.
type SnapshotLocations interface {
	Open(ctx context.Context, location string) (action.VolumeSnapshotter, error)
}

// Taker takes the snapshots of one backup. Safe for concurrent use.
type Taker struct {
	// Backup is what the snapshots are for, and has in spec.volumeSnapshotLocations which locations
	// are asked, in this order.
	Backup    *velerov1.Backup
	Locations SnapshotLocations
	// CSI returns why the volume of a CSI driver has no CSI snapshot; nil where CSI snapshots are
	// not taken, and such volumes are like others. No location is asked about the volumes (Velero
	// 1.18 with its feature EnableCSI): Find fails with a *CSIError.
	CSI func(ctx context.Context, pv *corev1.PersistentVolume) error
	// Close ends the processes behind Locations. It may be called more than once.
	Close func()
}

// CSIError is why a volume has no CSI snapshot.
type CSIError struct{ Err error }

// Error implements error.
func (e *CSIError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *CSIError) Unwrap() error { return e.Err }

// Unserved reports that no VolumeSnapshotClass is for the driver.
func (e *CSIError) Unserved() bool {
	var class *csisnapshot.ClassError
	return errors.As(e.Err, &class) && class.Unserved()
}

// Wanted reports whether snapshots of the backup's volumes are to be taken: there are locations, or
// CSI snapshots are enabled. Once the backup runs, its records decide that: a spec can be changed.
func (t *Taker) Wanted() bool {
	spec := &t.Backup.Spec
	return (t.CSI != nil || len(spec.VolumeSnapshotLocations) > 0) && (spec.SnapshotVolumes == nil || *spec.SnapshotVolumes)
}

// NativeVolume is a volume that a snapshotter supports.
type NativeVolume struct {
	// PV is the PersistentVolume.
	PV *corev1.PersistentVolume
	// Snapshot is of phase New.
	Snapshot nativesnapshot.Snapshot

	by action.VolumeSnapshotter
}

// Find returns the location that supports the volume, the PersistentVolume as JSON, with its
// description. Without an error and without Snapshot.Spec.Location none does. An error together
// with one means that it could not be described; else no location supports the volume, and the
// error is a *CSIError or names the locations that could not be called: one that wraps a
// *nativesnapshot.NoPluginError means that only plugins are missing.
func (t *Taker) Find(ctx context.Context, raw []byte) (NativeVolume, error) {
	v := NativeVolume{PV: &corev1.PersistentVolume{}}
	if err := json.Unmarshal(raw, v.PV); err != nil {
		return v, fmt.Errorf("read the PersistentVolume: %w", err)
	}
	if t.CSI != nil && v.PV.Spec.CSI != nil {
		return v, &CSIError{t.CSI(ctx, v.PV)}
	}
	var failed, unserved []error
	for _, location := range t.Backup.Spec.VolumeSnapshotLocations {
		by, id, err := t.findVolumeID(ctx, location, raw)
		if missing := new(nativesnapshot.NoPluginError); errors.As(err, &missing) {
			unserved = append(unserved, err)
			continue
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if id == "" {
			continue
		}
		v.by = by
		v.Snapshot = nativesnapshot.Snapshot{Spec: nativesnapshot.Spec{
			BackupName: t.Backup.Name, BackupUID: string(t.Backup.UID), Location: location,
			PersistentVolumeName: v.PV.Name, ProviderVolumeID: id, VolumeAZ: Zone(v.PV),
		}, Status: nativesnapshot.Status{Phase: nativesnapshot.PhaseNew}}
		return v, v.describeVolume(ctx)
	}
	if len(failed) > 0 {
		return v, errors.Join(failed...)
	}
	return v, errors.Join(unserved...)
}

// FindNamed is Find for a volume that was collected, or for which claims were, by its name. One that is not in the
// backup has no location.
func (t *Taker) FindNamed(ctx context.Context, finder *plan.Finder, res *resource.Resource, name string, volume Volume) (NativeVolume, error) {
	if !volume.Stored || t.CSI == nil && len(t.Backup.Spec.VolumeSnapshotLocations) == 0 {
		return NativeVolume{}, nil
	}
	found, err := finder.Read(ctx, res, action.Item{GroupResource: plan.Volumes, Name: name})
	switch {
	case err != nil:
		return NativeVolume{}, err
	case !found.Exists:
		return NativeVolume{}, errGone
	}
	return t.Find(ctx, found.Item.Raw)
}

func (t *Taker) findVolumeID(ctx context.Context, location string, raw []byte) (action.VolumeSnapshotter, string, error) {
	by, err := t.Locations.Open(ctx, location)
	if err != nil {
		return nil, "", err
	}
	id, err := by.VolumeID(ctx, action.FromJSON(raw))
	return by, id, err
}

func (v *NativeVolume) describeVolume(ctx context.Context) error {
	spec := &v.Snapshot.Spec
	what, err := v.by.Volume(ctx, spec.ProviderVolumeID, spec.VolumeAZ)
	if err != nil {
		return err
	}
	spec.VolumeType = what.Type
	if what.IOPS != 0 {
		spec.VolumeIOPS = &what.IOPS
	}
	return nil
}

var errNoID = errors.New("the plugin answered without the id of a snapshot")

// Take takes the snapshot of a volume that Find found. It must be called once: with an error there
// may be a snapshot or not.
func (t *Taker) Take(ctx context.Context, v *NativeVolume) (id string, err error) {
	tags := maps.Clone(t.Backup.Labels)
	if tags == nil {
		tags = map[string]string{}
	}
	spec := &v.Snapshot.Spec
	tags[TagBackup], tags[TagVolume] = t.Backup.Name, spec.PersistentVolumeName
	id, err = v.by.CreateSnapshot(ctx, spec.ProviderVolumeID, spec.VolumeAZ, tags)
	if err == nil && id == "" {
		err = fmt.Errorf("VolumeSnapshotLocation %q: CreateSnapshot: %w", spec.Location, errNoID)
	}
	return id, err
}
