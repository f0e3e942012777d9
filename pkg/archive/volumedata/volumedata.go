// Package volumedata reads from the bucket which volumes of a backup have data outside of it that
// Holdfast neither restores nor removes: CSI snapshots, file system backups and moved snapshots, as
// Velero 1.5 to 1.18 record them.
package volumedata

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Method is how the data of a volume was taken.
type Method string

// Methods. The first two are those of volume information, too.
const (
	PodVolumeBackup Method = "PodVolumeBackup"
	CSISnapshot     Method = "CSISnapshot"
	DataUpload      Method = "DataUpload"
)

// ErrMalformed means that a file of the backup cannot be read.
var ErrMalformed = errors.New("malformed file of volume data")

// Data is what was taken of one volume. A volume may come more than once, from several files.
type Data struct {
	Method Method
	// Namespace and Claim name the PersistentVolumeClaim, as in the backup; Claim is empty where the
	// files do not have it.
	Namespace, Claim string
	// Volume is the PersistentVolume's name, empty where the file does not have it.
	Volume string
	// Pod and PodVolume name the volume of a pod; only file system backups have them.
	Pod, PodVolume string
	// Snapshot is the VolumeSnapshot's name where neither claim nor volume is known.
	Snapshot string
	// Stored reports that there is data, or that the files do not say. A snapshot that failed has
	// none.
	Stored bool
	// Files is what a PodVolumeBackup or a DataUpload of the built-in data mover says of its snapshot, or the volume
	// information of one that is stored, which has ID and Uploader alone; nil otherwise.
	Files *FileSnapshot
}

// FileSnapshot is the snapshot of a volume in a repository of its namespace.
type FileSnapshot struct {
	// ID is empty where nothing was stored.
	ID       string
	Phase    velerov1.PodVolumePhase
	Uploader velerov1.UploaderType
	// Size is in bytes, 0 where it is not known.
	Size int64
	// ClaimUID is that of the claim in the cluster of the backup; empty for a volume that is no claim.
	ClaimUID string
}

// String names the volume for messages.
func (d Data) String() string {
	switch {
	case d.Claim != "":
		return fmt.Sprintf("%s of claim %s/%s", d.Method, d.Namespace, d.Claim)
	case d.Volume != "":
		return fmt.Sprintf("%s of volume %s", d.Method, d.Volume)
	case d.Pod != "":
		return fmt.Sprintf("%s of volume %s of pod %s/%s", d.Method, d.PodVolume, d.Namespace, d.Pod)
	}
	return fmt.Sprintf("%s %s/%s", d.Method, d.Namespace, d.Snapshot)
}

// volumeFile is one that may list volume data.
type volumeFile struct {
	key  func(backup string) string
	list volumeList
}

// maxData bounds what the files of one backup may list, so that callers can keep it.
const maxData = 200_000

// Each calls fn for all volume data that the files of a backup list. Files that are not there list
// nothing. The error wraps ErrMalformed when a file is damaged or has an entry of more than a MiB,
// or when they list more than 200,000 volumes. Memory is bounded by the largest entry. An error of
// fn ends the reading and is returned.
func Each(ctx context.Context, store objectstore.Reader, backup string, fn func(Data) error) error {
	return readVolumes(ctx, store, backup, append([]volumeFile{{layout.BackupVolumeInfo, decodeEntries(fromVolumeInfo)}}, lists...), fn)
}

// EachListed is Each without the volume information, for callers that read it themselves.
func EachListed(ctx context.Context, store objectstore.Reader, backup string, fn func(Data) error) error {
	return readVolumes(ctx, store, backup, lists, fn)
}

// lists are the files beside the volume information.
var lists = []volumeFile{
	{layout.BackupPodVolumeBackups, decodeEntries(fromPodVolumeBackup)},
	{layout.BackupItemOperations, decodeEntries(fromOperation)},
	{layout.BackupCSISnapshots, decodeEntries(fromCSISnapshot)},
}

func readVolumes(ctx context.Context, store objectstore.Reader, backup string, files []volumeFile, fn func(Data) error) error {
	n := 0
	for _, f := range files {
		err := eachVolume(ctx, store, f.key(backup), f.list, func(data Data) error {
			if n++; n > maxData {
				return fmt.Errorf("%w: the backup lists more than %d volumes", ErrMalformed, maxData)
			}
			return fn(data)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.key(backup), err)
		}
	}
	return nil
}
