package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/manifest"
	"github.com/kopia/kopia/snapshot"
	"github.com/kopia/kopia/snapshot/policy"
)

// Requester is for what a snapshot was taken: the first element of its source and a tag (Velero 1.18).
type Requester string

const (
	// PodVolume is the file-system backup of a Pod's volume.
	PodVolume Requester = "snapshot-pod-volume"
	// DataUpload is the movement of a CSI snapshot.
	DataUpload Requester = "snapshot-data-upload-download"
)

const (
	tagRequester = "snapshot-requester"
	tagUploader  = "snapshot-uploader"
	tagOperation = "velero.io/async-operation-id"
	// tagClaim is Holdfast's: the UID of the claim whose data it is, whatever the name of the Pod.
	tagClaim = "holdfast.io/claim-uid"
	uploader = "kopia"
	// checkpointReason marks the snapshots that kopia makes during an upload.
	checkpointReason = "checkpoint"
	veleroPin        = "velero-pin"
	description      = "Kopia Uploader"
	keepForever      = 1<<31 - 1
	partBytes        = 2 << 30
)

// Source is the volume whose data a snapshot has.
type Source struct {
	Requester Requester
	Namespace string
	// Pod is the name of the Pod; empty for DataUpload.
	Pod string
	// Volume is the name of the claim, or of the Pod's volume if it has none.
	Volume string
	// ClaimUID is the UID of the claim, if there is one.
	ClaimUID string
	// OperationID is the ID of the operation; DataUpload only.
	OperationID string
}

// Info returns the source as kopia names it.
func (s Source) Info() snapshot.SourceInfo {
	return snapshot.SourceInfo{Host: clientName, UserName: clientName, Path: path.Join(string(s.Requester), uploader, s.Namespace, s.Pod, s.Volume)}
}

// Tags returns the tags of the source's snapshots.
func (s Source) Tags() map[string]string {
	tags := map[string]string{tagRequester: string(s.Requester), tagUploader: uploader}
	if s.ClaimUID != "" {
		tags[tagClaim] = s.ClaimUID
	}
	if s.OperationID != "" {
		tags[tagOperation] = s.OperationID
	}
	return tags
}

// Parents returns the snapshots that an upload of the source may take unchanged files from, the latest
// complete one first, then of each upload that is newer the last checkpoint, which has all that was stored until then.
//
// The complete one is the latest of the same claim, by UID, whichever Pod used it. Only if there is none
// it is Velero's choice, the latest of the same path, but never one that is known to be of another claim:
// kopia takes files of equal name, size, mode, owner and time unread.
func (r *Repository) Parents(ctx context.Context, s Source) ([]*snapshot.Manifest, error) {
	found, err := r.listSnapshots(ctx, nil, map[string]string{tagRequester: string(s.Requester), tagUploader: uploader})
	if err != nil {
		return nil, err
	}
	prefix := path.Join(string(s.Requester), uploader, s.Namespace) + "/"
	found = slices.DeleteFunc(found, func(m *snapshot.Manifest) bool { return !strings.HasPrefix(m.Source.Path, prefix) })
	sameClaim := func(m *snapshot.Manifest) bool { return s.ClaimUID != "" && m.Tags[tagClaim] == s.ClaimUID }
	samePath := func(m *snapshot.Manifest) bool {
		return m.Source == s.Info() && (m.Tags[tagClaim] == "" || s.ClaimUID == "")
	}
	complete := latestComplete(found, sameClaim)
	if complete == nil {
		complete = latestComplete(found, samePath)
	}
	var parents []*snapshot.Manifest
	if complete != nil {
		parents = append(parents, complete)
	}
	last := map[fs.UTCTimestamp]*snapshot.Manifest{} // by the start of the upload
	for _, m := range found {
		if m.IncompleteReason == checkpointReason && (sameClaim(m) || samePath(m)) && (complete == nil || m.StartTime.After(complete.StartTime)) {
			if l := last[m.StartTime]; l == nil || m.EndTime.After(l.EndTime) {
				last[m.StartTime] = m
			}
		}
	}
	for _, start := range slices.Sorted(maps.Keys(last)) {
		parents = append(parents, last[start])
	}
	return parents, nil
}

func latestComplete(found []*snapshot.Manifest, matches func(*snapshot.Manifest) bool) *snapshot.Manifest {
	var latest *snapshot.Manifest
	for _, m := range found {
		if m.IncompleteReason == "" && matches(m) && (latest == nil || m.StartTime.After(latest.StartTime)) {
			latest = m
		}
	}
	return latest
}

func (r *Repository) listSnapshots(ctx context.Context, source *snapshot.SourceInfo, tags map[string]string) ([]*snapshot.Manifest, error) {
	ids, err := snapshot.ListSnapshotManifests(ctx, r.Repository, source, tags)
	if err != nil {
		return nil, ReadError(ctx, err)
	}
	found, err := snapshot.LoadSnapshots(ctx, r.Repository, ids)
	return found, ReadError(ctx, err)
}

// SavePolicy stores Velero's policy of the source, under which kopia never removes a snapshot by itself.
func SavePolicy(ctx context.Context, w repo.RepositoryWriter, s Source) error {
	keep, parts := policy.OptionalInt(keepForever), policy.OptionalInt64(partBytes)
	return policy.SetPolicy(ctx, w, s.Info(), &policy.Policy{
		RetentionPolicy: policy.RetentionPolicy{
			KeepLatest: &keep, KeepHourly: &keep, KeepDaily: &keep, KeepWeekly: &keep, KeepMonthly: &keep, KeepAnnual: &keep,
		},
		CompressionPolicy:   policy.CompressionPolicy{CompressorName: "none"},
		UploadPolicy:        policy.UploadPolicy{ParallelUploadAboveSize: &parts},
		SchedulingPolicy:    policy.SchedulingPolicy{Manual: true},
		ErrorHandlingPolicy: policy.ErrorHandlingPolicy{IgnoreUnknownTypes: policy.NewOptionalBool(true)},
	})
}

// UploadPolicy is what an upload does: no file is left out or compressed, and a file or directory that
// cannot be read does not end it. parallel is how many files may be read at once; kopia takes the number of CPUs else.
func UploadPolicy(parallel int) *policy.Tree {
	parts, files := policy.OptionalInt64(partBytes), policy.OptionalInt(parallel)
	p := *policy.DefaultPolicy
	p.FilesPolicy = policy.FilesPolicy{}
	p.CompressionPolicy = policy.CompressionPolicy{CompressorName: "none"}
	p.UploadPolicy = policy.UploadPolicy{ParallelUploadAboveSize: &parts, MaxParallelFileReads: &files}
	p.ErrorHandlingPolicy = policy.ErrorHandlingPolicy{IgnoreFileErrors: policy.NewOptionalBool(true), IgnoreDirectoryErrors: policy.NewOptionalBool(true)}
	return policy.BuildTree(nil, &p)
}

// SaveSnapshot stores a complete snapshot of the source as Velero does, removes the source's
// checkpoints, and returns its ID.
func (r *Repository) SaveSnapshot(ctx context.Context, w repo.RepositoryWriter, s Source, m *snapshot.Manifest) (string, error) {
	m.Description, m.Tags, m.Pins = description, s.Tags(), []string{veleroPin}
	id, err := snapshot.SaveSnapshot(ctx, w, m)
	if err != nil {
		return "", err
	}
	info := s.Info()
	where := &info
	if s.ClaimUID != "" {
		where = nil // a claim's checkpoints count under the name of any Pod
	}
	if err := removeCheckpoints(ctx, w, where, s.CheckpointTags(), func(*snapshot.Manifest) bool { return true }); err != nil {
		return "", err
	}
	return string(id), nil
}

// SaveCheckpoint stores an upload that did not end as a checkpoint, from which the next one goes on.
func SaveCheckpoint(ctx context.Context, w repo.RepositoryWriter, s Source, m *snapshot.Manifest) error {
	m.Description, m.Tags, m.IncompleteReason = description, s.CheckpointTags(), checkpointReason
	_, err := snapshot.SaveSnapshot(ctx, w, m)
	return err
}

// CheckpointTags returns the tags of the source's checkpoints, which outlive the operation.
func (s Source) CheckpointTags() map[string]string {
	s.OperationID = ""
	return s.Tags()
}

// LoadSnapshot reads a complete snapshot. One that lacks data is ErrIncomplete.
func (r *Repository) LoadSnapshot(ctx context.Context, id string) (*snapshot.Manifest, error) {
	m, err := snapshot.LoadSnapshot(ctx, r.Repository, manifest.ID(id))
	switch {
	case errors.Is(err, snapshot.ErrSnapshotNotFound):
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, id)
	case err != nil:
		return nil, ReadError(ctx, fmt.Errorf("snapshot %s: %w", id, err))
	case m.IncompleteReason != "":
		return nil, fmt.Errorf("%w: %s: %s", ErrIncomplete, id, m.IncompleteReason)
	case m.RootEntry == nil:
		return nil, fmt.Errorf("%w: snapshot %s has no root", ErrDamaged, id)
	}
	return m, nil
}
