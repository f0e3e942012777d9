package remove

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// uploaderKopia is the uploader whose snapshots can be removed.
	uploaderKopia velerov1.UploaderType = "kopia"
	// forgetBatch is how many snapshots one call removes.
	forgetBatch = 500
)

// Volumes removes snapshots of volume data from the repository that a location has for a namespace; those that
// are not there count as removed. volumes.Forgetter does.
type Volumes interface {
	ForgetSnapshots(ctx context.Context, location, namespace string, ids []string) error
}

// snapshotSet are the IDs of snapshots, by the namespace of their repository.
type snapshotSet map[string]map[string]bool

// addSnapshot adds a snapshot; without an ID nothing was stored.
func (s snapshotSet) addSnapshot(namespace, id string) {
	if id == "" {
		return
	}
	if s[namespace] == nil {
		s[namespace] = map[string]bool{}
	}
	s[namespace][id] = true
}

// isForgettable reports whether data of a volume is a snapshot that volume-mover removes.
func (j *deletionJob) isForgettable(d *volumedata.Data) bool {
	return j.remover.Volumes != nil && d.Files != nil && d.Files.Uploader == uploaderKopia
}

// forgetVolumes removes the snapshots of volumes from their repositories. Its errors keep the backup, without
// which their IDs are not known.
func (j *deletionJob) forgetVolumes(ctx context.Context, _ objectstore.Store, _ *velerov1.Backup) error {
	if allowsLeftData(j.backup, j.request) {
		return nil
	}
	for _, namespace := range slices.Sorted(maps.Keys(j.files)) {
		ids := slices.Sorted(maps.Keys(j.files[namespace]))
		for some := range slices.Chunk(ids, forgetBatch) {
			if err := j.held.Confirm(ctx); err != nil {
				return &keptError{err, byVolumeData}
			}
			if err := j.remover.Volumes.ForgetSnapshots(ctx, j.location.Name, namespace, some); err != nil {
				return &keptError{fmt.Errorf("snapshots of volumes of namespace %s: %w; with the annotation %s: \"true\" on the Backup they stay, and the backup is deleted",
					namespace, err, holdfast.AnnotationLeaveVolumeData), byVolumeData}
			}
		}
	}
	return nil
}
