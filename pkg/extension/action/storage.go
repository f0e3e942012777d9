package action

import (
	"context"
	"io"
	"time"
)

// ObjectStore is a provider of buckets, configured for one location. It cannot create
// conditionally, compose or read ranges; what needs these is built around it.
type ObjectStore interface {
	// Name is the registered name, which a location states as its provider.
	Name() string
	// Put writes the object, replacing an existing one. An empty body is refused: providers cannot
	// store it.
	Put(ctx context.Context, bucket, key string, body io.Reader) error
	// Exists reports whether the object exists.
	Exists(ctx context.Context, bucket, key string) (bool, error)
	// Get opens the object. The caller closes the reader; ctx ends the transfer.
	Get(ctx context.Context, bucket, key string) (io.ReadCloser, error)
	// ListCommonPrefixes returns the different beginnings of keys up to and including the first
	// delimiter after prefix.
	ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) ([]string, error)
	// ListObjects returns the keys that start with prefix.
	ListObjects(ctx context.Context, bucket, prefix string) ([]string, error)
	// Delete removes the object.
	Delete(ctx context.Context, bucket, key string) error
	// SignedURL returns a URL that needs no credentials to GET the object for ttl.
	SignedURL(ctx context.Context, bucket, key string, ttl time.Duration) (string, error)
}

// Volume is what a snapshot provider reports about a volume, and needs to make it again.
type Volume struct {
	// Type is the provider's name of the kind of volume.
	Type string
	// IOPS is 0 when it does not apply.
	IOPS int64
}

// VolumeSnapshotter takes and restores native snapshots of volumes, configured for one location.
type VolumeSnapshotter interface {
	// Name is the registered name, which a location states as its provider.
	Name() string
	// CreateVolume makes a volume of a snapshot and returns its id. zone may be empty.
	CreateVolume(ctx context.Context, snapshotID, zone string, volume Volume) (volumeID string, err error)
	// Volume describes the volume.
	Volume(ctx context.Context, volumeID, zone string) (Volume, error)
	// CreateSnapshot starts a snapshot of the volume and returns its id.
	CreateSnapshot(ctx context.Context, volumeID, zone string, tags map[string]string) (snapshotID string, err error)
	// DeleteSnapshot removes the snapshot.
	DeleteSnapshot(ctx context.Context, snapshotID string) error
	// VolumeID returns the id of the volume behind a PersistentVolume, empty when it is not the
	// provider's.
	VolumeID(ctx context.Context, persistentVolume *Object) (string, error)
	// SetVolumeID returns the PersistentVolume, pointing to that volume.
	SetVolumeID(ctx context.Context, persistentVolume *Object, volumeID string) (*Object, error)
}
