package wireserver

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

type snapshotters struct {
	velero.UnimplementedVolumeSnapshotterServer
	*Server
}

func (s snapshotters) findSnapshotter(name string) (plugin.VolumeSnapshotter, error) {
	p, _, err := findPlugin[plugin.VolumeSnapshotter](s.Server, plugin.KindVolumeSnapshotter, name)
	return p, err
}

func (s snapshotters) Init(ctx context.Context, req *velero.VolumeSnapshotterInitRequest) (*velero.Empty, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.Empty{}, p.Init(ctx, req.GetConfig())
}

func (s snapshotters) CreateVolumeFromSnapshot(ctx context.Context, req *velero.CreateVolumeRequest) (*velero.CreateVolumeResponse, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	id, err := p.CreateVolumeFromSnapshot(ctx, req.GetSnapshotId(), req.GetVolumeType(), req.GetVolumeAz(), req.GetIops())
	return &velero.CreateVolumeResponse{VolumeId: id}, err
}

func (s snapshotters) GetVolumeInfo(ctx context.Context, req *velero.GetVolumeInfoRequest) (*velero.GetVolumeInfoResponse, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	kind, iops, err := p.GetVolumeInfo(ctx, req.GetVolumeId(), req.GetVolumeAz())
	return &velero.GetVolumeInfoResponse{VolumeType: kind, Iops: iops}, err
}

func (s snapshotters) CreateSnapshot(ctx context.Context, req *velero.CreateSnapshotRequest) (*velero.CreateSnapshotResponse, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	id, err := p.CreateSnapshot(ctx, req.GetVolumeId(), req.GetVolumeAz(), req.GetTags())
	return &velero.CreateSnapshotResponse{SnapshotId: id}, err
}

func (s snapshotters) DeleteSnapshot(ctx context.Context, req *velero.DeleteSnapshotRequest) (*velero.Empty, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.Empty{}, p.DeleteSnapshot(ctx, req.GetSnapshotId())
}

func (s snapshotters) GetVolumeID(ctx context.Context, req *velero.GetVolumeIDRequest) (*velero.GetVolumeIDResponse, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	volume, err := decodeItem("persistentVolume", req.GetPersistentVolume())
	if err != nil {
		return nil, err
	}
	id, err := p.GetVolumeID(ctx, volume)
	return &velero.GetVolumeIDResponse{VolumeId: id}, err
}

func (s snapshotters) SetVolumeID(ctx context.Context, req *velero.SetVolumeIDRequest) (*velero.SetVolumeIDResponse, error) {
	p, err := s.findSnapshotter(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	volume, err := decodeItem("persistentVolume", req.GetPersistentVolume())
	if err != nil {
		return nil, err
	}
	changed, err := p.SetVolumeID(ctx, volume, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	raw, err := encodeItem(changed)
	return &velero.SetVolumeIDResponse{PersistentVolume: raw}, err
}
