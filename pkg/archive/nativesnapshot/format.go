// Package nativesnapshot is about snapshots that a storage provider's volume snapshotter took of
// volumes: the file of a backup that lists them, and the plugins behind VolumeSnapshotLocations.
package nativesnapshot

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Phases of a snapshot (Velero 1.18).
const (
	PhaseNew       = "New"
	PhaseCompleted = "Completed"
	PhaseFailed    = "Failed"
)

// Snapshot is an entry of a backup's -volumesnapshots.json.gz (Velero 1.18).
type Snapshot struct {
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec is what a snapshot is of.
type Spec struct {
	BackupName string `json:"backupName"`
	BackupUID  string `json:"backupUID"`
	// Location is the name of the VolumeSnapshotLocation.
	Location             string `json:"location"`
	PersistentVolumeName string `json:"persistentVolumeName"`
	ProviderVolumeID     string `json:"providerVolumeID"`
	VolumeType           string `json:"volumeType"`
	VolumeAZ             string `json:"volumeAZ,omitempty"`
	VolumeIOPS           *int64 `json:"volumeIOPS,omitempty"`
}

// Status is what became of it.
type Status struct {
	// ProviderSnapshotID is empty where no snapshot came about.
	ProviderSnapshotID string `json:"providerSnapshotID,omitempty"`
	Phase              string `json:"phase,omitempty"`
}

const (
	// maxFile and maxText bound the file, as stored and as text, maxElement the text of one
	// snapshot.
	maxFile    = 16 << 20
	maxText    = 64 << 20
	maxElement = 256 << 10
	// maxSnapshots bounds their number.
	maxSnapshots = 100_000
)

// ErrMalformed means that a backup's list of snapshots cannot be read.
var ErrMalformed = errors.New("malformed list of volume snapshots")

// Read returns the snapshots of a backup. A backup without the file has none. The error wraps
// ErrMalformed when the file is damaged or too large.
func Read(ctx context.Context, store objectstore.Reader, backup string) ([]Snapshot, error) {
	key := layout.BackupVolumeSnapshots(backup)
	data, err := objectstore.ReadAll(ctx, store, key, maxFile)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, nil
	case errors.Is(err, objectstore.ErrSize):
		return nil, fmt.Errorf("%s: %w: %w", key, ErrMalformed, err)
	case err != nil:
		return nil, err
	}
	snapshots, err := decodeSnapshots(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, ErrMalformed, err)
	}
	return snapshots, nil
}

func decodeSnapshots(data []byte) ([]Snapshot, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var snapshots []Snapshot
	limits := jsonlimit.Limits{Text: maxText, Element: maxElement, Decoded: 16 * maxElement}
	err = jsonlimit.Each(unzipped, limits, func(s *Snapshot) error {
		if len(snapshots) == maxSnapshots {
			return fmt.Errorf("%w: more than %d snapshots", jsonlimit.ErrLimit, maxSnapshots)
		}
		snapshots = append(snapshots, *s)
		return nil
	})
	return snapshots, err
}
