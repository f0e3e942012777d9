// Package nativesnapshot is about snapshots that a storage provider's volume snapshotter took of volumes: the file of a
// backup that lists them, and the plugins behind VolumeSnapshotLocations.
package nativesnapshot

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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

// Spec says what a snapshot is of.
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

// Status says what became of it.
type Status struct {
	// ProviderSnapshotID is empty where no snapshot came about.
	ProviderSnapshotID string `json:"providerSnapshotID,omitempty"`
	Phase              string `json:"phase,omitempty"`
}

const (
	// maxFile and maxText bound the file, as stored and as text: some 100,000 snapshots.
	maxFile = 16 << 20
	maxText = 64 << 20
)

// ErrMalformed means that a backup's list of snapshots cannot be read.
var ErrMalformed = errors.New("malformed list of volume snapshots")

// Read returns the snapshots of a backup. A backup without the file has none. The error wraps ErrMalformed when the file is
// damaged or too large.
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
	snapshots, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", key, ErrMalformed, err)
	}
	return snapshots, nil
}

func decode(data []byte) ([]Snapshot, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(unzipped, maxText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("more than %d bytes", maxText)
	}
	var snapshots []Snapshot
	if err := json.Unmarshal(text, &snapshots); err != nil {
		return nil, err
	}
	return snapshots, nil
}
