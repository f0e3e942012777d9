package pluginhost

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// volumeSnapshotter serves generated.VolumeSnapshotter.
type volumeSnapshotter struct{ *storage }

func newVolumeSnapshotter(p plugin, config map[string]string) *volumeSnapshotter {
	return &volumeSnapshotter{newStorage(p, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := velero.NewVolumeSnapshotterClient(conn).Init(ctx, &velero.VolumeSnapshotterInitRequest{Plugin: p.name, Config: config})
		return err
	})}
}

// Prepare starts the plugin's process and passes it the configuration, unless there is one that
// has it.
func (v *volumeSnapshotter) Prepare(ctx context.Context) error {
	return v.runConfigured(ctx, v.slowCall("Prepare"), func(context.Context, *process) error { return nil })
}

// CreateVolume calls the plugin.
func (v *volumeSnapshotter) CreateVolume(ctx context.Context, snapshotID, zone string, volume action.Volume) (id string, err error) {
	err = v.runConfigured(ctx, v.slowCall("CreateVolumeFromSnapshot"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewVolumeSnapshotterClient(p.conn).CreateVolumeFromSnapshot(ctx, &velero.CreateVolumeRequest{
			Plugin: v.name, SnapshotId: snapshotID, VolumeType: volume.Type, VolumeAz: zone, Iops: volume.IOPS})
		id = answer.GetVolumeId()
		return err
	})
	return id, err
}

// Volume calls the plugin.
func (v *volumeSnapshotter) Volume(ctx context.Context, volumeID, zone string) (volume action.Volume, err error) {
	err = v.runConfigured(ctx, v.newQuery("GetVolumeInfo"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewVolumeSnapshotterClient(p.conn).GetVolumeInfo(ctx, &velero.GetVolumeInfoRequest{Plugin: v.name, VolumeId: volumeID, VolumeAz: zone})
		volume = action.Volume{Type: answer.GetVolumeType(), IOPS: answer.GetIops()}
		return err
	})
	return volume, err
}

// CreateSnapshot calls the plugin.
func (v *volumeSnapshotter) CreateSnapshot(ctx context.Context, volumeID, zone string, tags map[string]string) (id string, err error) {
	err = v.runConfigured(ctx, v.slowCall("CreateSnapshot"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewVolumeSnapshotterClient(p.conn).CreateSnapshot(ctx, &velero.CreateSnapshotRequest{
			Plugin: v.name, VolumeId: volumeID, VolumeAz: zone, Tags: tags})
		id = answer.GetSnapshotId()
		return err
	})
	return id, err
}

// DeleteSnapshot calls the plugin.
func (v *volumeSnapshotter) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return v.runConfigured(ctx, v.slowCall("DeleteSnapshot"), func(ctx context.Context, p *process) error {
		_, err := velero.NewVolumeSnapshotterClient(p.conn).DeleteSnapshot(ctx, &velero.DeleteSnapshotRequest{Plugin: v.name, SnapshotId: snapshotID})
		return err
	})
}

// VolumeID calls the plugin.
func (v *volumeSnapshotter) VolumeID(ctx context.Context, persistentVolume *action.Object) (id string, err error) {
	c := v.newQuery("GetVolumeID")
	c.object = persistentVolume
	err = v.runConfigured(ctx, c, func(ctx context.Context, p *process) error {
		text, err := persistentVolume.JSON()
		if err != nil {
			return err
		}
		answer, err := velero.NewVolumeSnapshotterClient(p.conn).GetVolumeID(ctx, &velero.GetVolumeIDRequest{Plugin: v.name, PersistentVolume: text})
		id = answer.GetVolumeId()
		return err
	})
	return id, err
}

// SetVolumeID calls the plugin.
func (v *volumeSnapshotter) SetVolumeID(ctx context.Context, persistentVolume *action.Object, volumeID string) (changed *action.Object, err error) {
	c := v.newShortCall("SetVolumeID")
	c.object = persistentVolume
	err = v.runConfigured(ctx, c, func(ctx context.Context, p *process) error {
		text, err := persistentVolume.JSON()
		if err != nil {
			return err
		}
		answer, err := velero.NewVolumeSnapshotterClient(p.conn).SetVolumeID(ctx, &velero.SetVolumeIDRequest{
			Plugin: v.name, PersistentVolume: text, VolumeId: volumeID})
		if err != nil {
			return err
		}
		changed, err = answerOf(persistentVolume, answer.GetPersistentVolume(), false)
		return err
	})
	return changed, err
}
