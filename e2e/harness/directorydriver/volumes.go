package directorydriver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// defaultSize is the capacity of a volume whose request names none, in bytes.
const defaultSize = 1 << 30

// driverVolume is a directory.
type driverVolume struct {
	id, dir string
	size    int64
	source  *csi.VolumeContentSource
	writes  sync.Mutex // held by Write and by what cuts a snapshot
}

// idOf names a volume or a snapshot by the name in its request: a repeated request gets the same.
func idOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// CreateVolume implements csi.ControllerServer.
func (d *Driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and volume_capabilities are required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, limits := idOf(r.GetName()), r.GetCapacityRange()
	v := d.volumes[id]
	if v == nil {
		v = &driverVolume{id: id, dir: d.pathOf("volumes", id), source: r.GetVolumeContentSource(),
			size: cmp.Or(limits.GetRequiredBytes(), limits.GetLimitBytes(), defaultSize)}
		if err := d.fillVolume(ctx, v); err != nil {
			return nil, err
		}
		d.volumes[id] = v
	}
	if limit := limits.GetLimitBytes(); v.size < limits.GetRequiredBytes() || limit > 0 && v.size > limit || !proto.Equal(v.source, r.GetVolumeContentSource()) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with another size or content", r.GetName())
	}
	return &csi.CreateVolumeResponse{Volume: v.describeVolume()}, nil
}

// fillVolume makes the directory of a volume, with the files of the snapshot that it is to be made of.
func (d *Driver) fillVolume(ctx context.Context, v *driverVolume) error {
	if v.source == nil {
		if err := os.Mkdir(v.dir, 0o700); err != nil {
			return status.Errorf(codes.Internal, "make a volume: %v", err)
		}
		return nil
	}
	s := d.snapshots[v.source.GetSnapshot().GetSnapshotId()]
	switch {
	case s == nil:
		return status.Errorf(codes.NotFound, "there is no snapshot %q", v.source.GetSnapshot().GetSnapshotId())
	case v.size < s.size:
		return status.Errorf(codes.OutOfRange, "a volume of the snapshot needs %d bytes", s.size)
	}
	if err := copyFiles(ctx, s.dir, v.dir); err != nil {
		return status.Errorf(codes.Internal, "make a volume of a snapshot: %v", err)
	}
	d.restored++
	return nil
}

func (v *driverVolume) describeVolume() *csi.Volume {
	return &csi.Volume{VolumeId: v.id, CapacityBytes: v.size, ContentSource: v.source}
}

// DeleteVolume implements csi.ControllerServer.
func (d *Driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[r.GetVolumeId()]; v != nil {
		if err := os.RemoveAll(v.dir); err != nil {
			return nil, status.Errorf(codes.Internal, "remove a volume: %v", err)
		}
		delete(d.volumes, v.id)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ListVolumes implements csi.ControllerServer.
func (d *Driver) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, next, err := pageOf(d.volumes, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &csi.ListVolumesResponse{NextToken: next}
	for _, id := range ids {
		out.Entries = append(out.Entries, &csi.ListVolumesResponse_Entry{Volume: d.volumes[id].describeVolume()})
	}
	return out, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer. A volume can be mounted in any way.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_id and volume_capabilities are required")
	}
	if err := d.checkVolume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}

// checkVolume returns an error where there is no such volume.
func (d *Driver) checkVolume(volume string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.volumes[volume] == nil {
		return status.Errorf(codes.NotFound, "there is no volume %q", volume)
	}
	return nil
}
