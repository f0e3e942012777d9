package plugin

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ObjectStore reads and writes the objects of a backup storage location.
type ObjectStore interface {
	// Init gets the location's config with bucket, prefix and, where set, caCert and
	// credentialsFile. It comes before any other call, and again whenever a server uses another
	// location of the same provider.
	Init(ctx context.Context, config map[string]string) error
	// PutObject writes an object as a whole: when it fails, there is none or the one before.
	PutObject(ctx context.Context, bucket, key string, body io.Reader) error
	// ObjectExists reports whether there is an object.
	ObjectExists(ctx context.Context, bucket, key string) (bool, error)
	// GetObject reads an object. The caller closes it.
	GetObject(ctx context.Context, bucket, key string) (io.ReadCloser, error)
	// ListCommonPrefixes lists the distinct beginnings of keys up to and with the first delimiter
	// after the prefix.
	ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) ([]string, error)
	// ListObjects lists all keys that begin with the prefix.
	ListObjects(ctx context.Context, bucket, prefix string) ([]string, error)
	// DeleteObject deletes an object; that there is none is no error.
	DeleteObject(ctx context.Context, bucket, key string) error
	// CreateSignedURL makes a URL under which the object can be read without credentials for the
	// given time.
	CreateSignedURL(ctx context.Context, bucket, key string, ttl time.Duration) (string, error)
}

// VolumeSnapshotter takes, restores and deletes snapshots of persistent volumes.
type VolumeSnapshotter interface {
	// Init gets the location's config and, where set, credentialsFile. It comes before any other
	// call, and may come again.
	Init(ctx context.Context, config map[string]string) error
	// CreateVolumeFromSnapshot makes a volume of a snapshot and returns its ID. iops is 0 if none
	// are asked for.
	CreateVolumeFromSnapshot(ctx context.Context, snapshotID, volumeType, zone string, iops int64) (string, error)
	// GetVolumeInfo returns the type of a volume and its I/O operations per second, 0 for unknown.
	GetVolumeInfo(ctx context.Context, volumeID, zone string) (volumeType string, iops int64, err error)
	// CreateSnapshot takes a snapshot of a volume, tags it and returns its ID.
	CreateSnapshot(ctx context.Context, volumeID, zone string, tags map[string]string) (string, error)
	// DeleteSnapshot deletes a snapshot; that there is none is no error.
	DeleteSnapshot(ctx context.Context, snapshotID string) error
	// GetVolumeID returns the volume of a PersistentVolume, empty if it is none of this plugin's.
	GetVolumeID(ctx context.Context, volume *unstructured.Unstructured) (string, error)
	// SetVolumeID returns the PersistentVolume with another volume.
	SetVolumeID(ctx context.Context, volume *unstructured.Unstructured, volumeID string) (*unstructured.Unstructured, error)
}
