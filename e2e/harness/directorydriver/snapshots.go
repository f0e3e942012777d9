package directorydriver

import (
	"context"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// driverSnapshot is a copy of a volume.
type driverSnapshot struct {
	id, dir, volume string
	block           bool
	size            int64
	cut             time.Time
}

// CreateSnapshot implements csi.ControllerServer.
func (d *Driver) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if r.GetName() == "" || r.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_id are required")
	}
	if err := d.awaitSettled(ctx, r.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := deriveID(r.GetName())
	s := d.snapshots[id]
	if s == nil {
		var err error
		if s, err = d.cutSnapshot(ctx, id, d.volumes[r.GetSourceVolumeId()]); err != nil {
			return nil, err
		}
	}
	if s.volume != r.GetSourceVolumeId() {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of another volume", r.GetName())
	}
	return &csi.CreateSnapshotResponse{Snapshot: d.describeSnapshot(s)}, nil
}

// cutSnapshot copies a volume while nothing is written to it.
func (d *Driver) cutSnapshot(ctx context.Context, id string, v *driverVolume) (*driverSnapshot, error) {
	if v == nil {
		return nil, status.Error(codes.NotFound, "the volume does not exist")
	}
	v.writes.Lock()
	defer v.writes.Unlock()
	s := &driverSnapshot{id: id, dir: d.pathOf("snapshots", id), volume: v.id, block: v.block, size: v.size, cut: d.config.Clock.Now()}
	if v.device != nil {
		if err := v.device.Sync(); err != nil { // what was written to the device may not be in the file yet
			return nil, status.Errorf(codes.Internal, "write a device: %v", err)
		}
	}
	if err := copyFiles(ctx, v.path, s.dir); err != nil {
		return nil, status.Errorf(codes.Internal, "copy a volume: %v", err)
	}
	d.snapshots[id] = s
	d.taken++
	return s, nil
}

// describeSnapshot is what the driver reports of a snapshot. The caller holds the lock.
func (d *Driver) describeSnapshot(s *driverSnapshot) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: s.id, SourceVolumeId: s.volume, SizeBytes: s.size, CreationTime: timestamppb.New(s.cut),
		ReadyToUse: !d.behaviour[s.volume].NotReady}
}

// DeleteSnapshot implements csi.ControllerServer.
func (d *Driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_id is required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused != nil {
		return nil, status.Error(codes.FailedPrecondition, d.refused.Error())
	}
	if s := d.snapshots[r.GetSnapshotId()]; s != nil {
		if err := os.RemoveAll(s.dir); err != nil {
			return nil, status.Errorf(codes.Internal, "remove a snapshot: %v", err)
		}
		delete(d.snapshots, s.id)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots implements csi.ControllerServer.
func (d *Driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := map[string]*driverSnapshot{}
	for id, s := range d.snapshots {
		if (r.GetSnapshotId() == "" || r.GetSnapshotId() == id) && (r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == s.volume) {
			wanted[id] = s
		}
	}
	ids, next, err := cutPage(wanted, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &csi.ListSnapshotsResponse{NextToken: next}
	for _, id := range ids {
		out.Entries = append(out.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: d.describeSnapshot(wanted[id])})
	}
	return out, nil
}
