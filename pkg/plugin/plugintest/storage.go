package plugintest

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// chunk is how much of an object a server sends in a message.
const chunk = 16 << 10

// ObjectStore returns a client of the provider of that name.
func (p *Process) ObjectStore(name string) plugin.ObjectStore {
	return objectStore{velero.NewObjectStoreClient(p.conn), name}
}

type objectStore struct {
	service velero.ObjectStoreClient
	name    string
}

func (s objectStore) Init(ctx context.Context, config map[string]string) error {
	_, err := s.service.Init(ctx, &velero.ObjectStoreInitRequest{Plugin: s.name, Config: config})
	return err
}

// PutObject sends nothing for an empty body, as servers do; plugins cannot store it.
func (s objectStore) PutObject(ctx context.Context, bucket, key string, body io.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // a body that fails must not look like one that ended
	stream, err := s.service.PutObject(ctx)
	if err != nil {
		return err
	}
	buffer := make([]byte, chunk)
	for {
		n, err := io.ReadFull(body, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n > 0 {
			// An error here only says that the plugin has answered; the answer has the reason.
			if sendErr := stream.Send(&velero.PutObjectRequest{Plugin: s.name, Bucket: bucket, Key: key, Body: buffer[:n]}); sendErr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

func (s objectStore) ObjectExists(ctx context.Context, bucket, key string) (bool, error) {
	resp, err := s.service.ObjectExists(ctx, &velero.ObjectExistsRequest{Plugin: s.name, Bucket: bucket, Key: key})
	return resp.GetExists(), err
}

// GetObject returns an error of the plugin from the first Read on.
func (s objectStore) GetObject(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	ctx, stop := context.WithCancel(ctx)
	stream, err := s.service.GetObject(ctx, &velero.GetObjectRequest{Plugin: s.name, Bucket: bucket, Key: key})
	if err != nil {
		stop()
		return nil, err
	}
	return &reader{stream: stream, stop: stop}, nil
}

type reader struct {
	stream grpc.ServerStreamingClient[velero.Bytes]
	stop   context.CancelFunc
	rest   []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		next, err := r.stream.Recv()
		if err != nil {
			return 0, err
		}
		r.rest = next.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reader) Close() error {
	r.stop()
	return nil
}

func (s objectStore) ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) ([]string, error) {
	resp, err := s.service.ListCommonPrefixes(ctx, &velero.ListCommonPrefixesRequest{Plugin: s.name, Bucket: bucket, Delimiter: delimiter, Prefix: prefix})
	return resp.GetPrefixes(), err
}

func (s objectStore) ListObjects(ctx context.Context, bucket, prefix string) ([]string, error) {
	resp, err := s.service.ListObjects(ctx, &velero.ListObjectsRequest{Plugin: s.name, Bucket: bucket, Prefix: prefix})
	return resp.GetKeys(), err
}

func (s objectStore) DeleteObject(ctx context.Context, bucket, key string) error {
	_, err := s.service.DeleteObject(ctx, &velero.DeleteObjectRequest{Plugin: s.name, Bucket: bucket, Key: key})
	return err
}

func (s objectStore) CreateSignedURL(ctx context.Context, bucket, key string, ttl time.Duration) (string, error) {
	resp, err := s.service.CreateSignedURL(ctx, &velero.CreateSignedURLRequest{Plugin: s.name, Bucket: bucket, Key: key, Ttl: int64(ttl)})
	return resp.GetUrl(), err
}

// VolumeSnapshotter returns a client of the provider of that name.
func (p *Process) VolumeSnapshotter(name string) plugin.VolumeSnapshotter {
	return snapshotter{velero.NewVolumeSnapshotterClient(p.conn), name}
}

type snapshotter struct {
	service velero.VolumeSnapshotterClient
	name    string
}

func (s snapshotter) Init(ctx context.Context, config map[string]string) error {
	_, err := s.service.Init(ctx, &velero.VolumeSnapshotterInitRequest{Plugin: s.name, Config: config})
	return err
}

func (s snapshotter) CreateVolumeFromSnapshot(ctx context.Context, snapshotID, volumeType, zone string, iops int64) (string, error) {
	resp, err := s.service.CreateVolumeFromSnapshot(ctx, &velero.CreateVolumeRequest{
		Plugin: s.name, SnapshotId: snapshotID, VolumeType: volumeType, VolumeAz: zone, Iops: iops,
	})
	return resp.GetVolumeId(), err
}

func (s snapshotter) GetVolumeInfo(ctx context.Context, volumeID, zone string) (string, int64, error) {
	resp, err := s.service.GetVolumeInfo(ctx, &velero.GetVolumeInfoRequest{Plugin: s.name, VolumeId: volumeID, VolumeAz: zone})
	return resp.GetVolumeType(), resp.GetIops(), err
}

func (s snapshotter) CreateSnapshot(ctx context.Context, volumeID, zone string, tags map[string]string) (string, error) {
	resp, err := s.service.CreateSnapshot(ctx, &velero.CreateSnapshotRequest{Plugin: s.name, VolumeId: volumeID, VolumeAz: zone, Tags: tags})
	return resp.GetSnapshotId(), err
}

func (s snapshotter) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	_, err := s.service.DeleteSnapshot(ctx, &velero.DeleteSnapshotRequest{Plugin: s.name, SnapshotId: snapshotID})
	return err
}

func (s snapshotter) GetVolumeID(ctx context.Context, volume *unstructured.Unstructured) (string, error) {
	raw, err := encodeObject(volume)
	if err != nil {
		return "", err
	}
	resp, err := s.service.GetVolumeID(ctx, &velero.GetVolumeIDRequest{Plugin: s.name, PersistentVolume: raw})
	return resp.GetVolumeId(), err
}

func (s snapshotter) SetVolumeID(ctx context.Context, volume *unstructured.Unstructured, volumeID string) (*unstructured.Unstructured, error) {
	raw, err := encodeObject(volume)
	if err != nil {
		return nil, err
	}
	resp, err := s.service.SetVolumeID(ctx, &velero.SetVolumeIDRequest{Plugin: s.name, PersistentVolume: raw, VolumeId: volumeID})
	if err != nil {
		return nil, err
	}
	return decodeObject(resp.GetPersistentVolume())
}
