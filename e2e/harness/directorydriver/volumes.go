package directorydriver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// defaultSize is the capacity of a volume whose request names none, in bytes.
const defaultSize = 1 << 30

// sector is the unit of the size of a block device, in bytes.
const sector = 512

// driverVolume is a directory, or a file for a block volume.
type driverVolume struct {
	id, path string
	block    bool
	size     int64
	source   *csi.VolumeContentSource
	writes   sync.Mutex      // held by Write and by what cuts a snapshot
	targets  map[string]bool // where it is published
	device   *os.File        // the loop device of a block volume that is published
}

func isBlock(capability *csi.VolumeCapability) bool { return capability.GetBlock() != nil }

// deriveID names a volume or a snapshot by the name in its request: a repeated request gets the same.
func deriveID(name string) string {
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
	id, limits, block := deriveID(r.GetName()), r.GetCapacityRange(), slices.ContainsFunc(r.GetVolumeCapabilities(), isBlock)
	v := d.volumes[id]
	if v == nil {
		v = &driverVolume{id: id, path: d.pathOf("volumes", id), block: block, source: r.GetVolumeContentSource(), targets: map[string]bool{},
			size: cmp.Or(limits.GetRequiredBytes(), limits.GetLimitBytes(), defaultSize)}
		if err := d.fillVolume(ctx, v); err != nil {
			return nil, err
		}
		d.volumes[id] = v
	}
	if limit := limits.GetLimitBytes(); v.size < limits.GetRequiredBytes() || limit > 0 && v.size > limit || v.block != block || !proto.Equal(v.source, r.GetVolumeContentSource()) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with another size, mode or content", r.GetName())
	}
	return &csi.CreateVolumeResponse{Volume: v.describeVolume()}, nil
}

// fillVolume makes the directory or file of a volume, with the content of the snapshot that it is to be made of.
func (d *Driver) fillVolume(ctx context.Context, v *driverVolume) error {
	if v.source != nil {
		s := d.snapshots[v.source.GetSnapshot().GetSnapshotId()]
		switch {
		case s == nil:
			return status.Errorf(codes.NotFound, "there is no snapshot %q", v.source.GetSnapshot().GetSnapshotId())
		case v.size < s.size:
			return status.Errorf(codes.OutOfRange, "a volume of the snapshot needs %d bytes", s.size)
		case v.block != s.block:
			return status.Error(codes.InvalidArgument, "the snapshot is of a volume of the other mode")
		}
		if err := copyFiles(ctx, s.dir, v.path); err != nil {
			return status.Errorf(codes.Internal, "make a volume of a snapshot: %v", err)
		}
		d.restored++
	}
	var err error
	switch {
	case v.block:
		err = resizeFile(v.path, (v.size+sector-1)/sector*sector)
	case v.source == nil:
		err = os.Mkdir(v.path, 0o700)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "make a volume: %v", err)
	}
	return nil
}

// resizeFile gives a file, which it makes if there is none, a hole at its end up to this size.
func resizeFile(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Close())
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
		if len(v.targets) > 0 {
			return nil, status.Error(codes.FailedPrecondition, "the volume is published")
		}
		if v.device != nil { // of AttachVolume
			_ = v.device.Close()
		}
		if err := os.RemoveAll(v.path); err != nil {
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
	ids, next, err := cutPage(d.volumes, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &csi.ListVolumesResponse{NextToken: next}
	for _, id := range ids {
		out.Entries = append(out.Entries, &csi.ListVolumesResponse_Entry{Volume: d.volumes[id].describeVolume()})
	}
	return out, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer. A volume can be mounted in any way of its mode.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_id and volume_capabilities are required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[r.GetVolumeId()]
	switch {
	case v == nil:
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	case slices.ContainsFunc(r.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return isBlock(c) != v.block }):
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume is of the other mode"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}
