package directorydriver

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetInfo implements csi.NodeServer.
func (*Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node"}, nil
}

// NodeGetCapabilities implements csi.NodeServer.
func (*Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume implements csi.NodeServer. A block volume appears as a loop device, which cannot be read-only: all
// targets have the same. Without a kubelet the target is a symbolic link to the directory or file, which needs no right
// to mount; a container could not use it.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id, target_path and volume_capability are required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[r.GetVolumeId()]
	switch {
	case v == nil:
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	case v.block != isBlock(r.GetVolumeCapability()):
		return nil, status.Error(codes.InvalidArgument, "the volume is of the other mode")
	case v.targets[r.GetTargetPath()]:
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := d.publishVolume(v, r.GetTargetPath(), r.GetReadonly()); err != nil {
		return nil, status.Errorf(codes.Internal, "publish a volume: %v", errors.Join(err, d.unpublishVolume(v, r.GetTargetPath())))
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publishVolume has a volume appear at target. What it leaves when it fails, unpublishVolume removes.
func (d *Driver) publishVolume(v *driverVolume, target string, readOnly bool) (err error) {
	v.targets[target] = true
	if d.config.Kubelet == "" {
		return os.Symlink(v.path, target)
	}
	if !v.block {
		if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return bindMount(v.path, target, readOnly)
	}
	if v.device == nil {
		if v.device, err = attachDevice(v.path); err != nil {
			return err
		}
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	return bindMount(v.device.Name(), target, false)
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id and target_path are required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[r.GetVolumeId()]
	if v == nil {
		return &csi.NodeUnpublishVolumeResponse{}, nil // no volume is removed while it is published
	}
	if err := d.unpublishVolume(v, r.GetTargetPath()); err != nil {
		return nil, status.Errorf(codes.Internal, "unpublish a volume: %v", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// unpublishVolume removes what publishVolume has made, with the loop device once it was the last target.
func (d *Driver) unpublishVolume(v *driverVolume, target string) error {
	if d.config.Kubelet != "" {
		if err := removeMount(target); err != nil {
			return err
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(v.targets, target)
	if v.device == nil || len(v.targets) > 0 {
		return nil
	}
	device := v.device
	v.device = nil
	return device.Close()
}
