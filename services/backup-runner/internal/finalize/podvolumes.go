package finalize

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// PodVolumes are the requests of file-system backups; podvolume.API has them.
type PodVolumes interface {
	ListBackups(ctx context.Context, labels map[string]string) ([]velerov1.PodVolumeBackup, error)
	ListUploads(ctx context.Context, labels map[string]string) ([]v2alpha1.DataUpload, error)
	// CancelBackups cancels the requests of a backup that are not final.
	CancelBackups(ctx context.Context, backup *velerov1.Backup, reason string) error
}

// hasPodVolumes reports whether an operation of the backup has requests.
func (s *State) hasPodVolumes() bool {
	return slices.ContainsFunc(s.Composition.Operations, func(op operation.Operation) bool { return op.Action == podvolume.NameBackup })
}

// fixRequests stores the file of the requests as they are now, or follows the one that an earlier
// holder stored: what else is stored of the volumes depends on it.
func fixRequests(ctx context.Context, s *State) error {
	if s.PodVolumes == nil || !s.hasPodVolumes() {
		return nil
	}
	stored, err := s.readRequests(ctx)
	if !errors.Is(err, objectstore.ErrNotFound) {
		s.requests = stored
		return err
	}
	var live []velerov1.PodVolumeBackup
	err = retry.Loop{Clock: s.Clock, Log: s.Log}.Do(ctx, "list the PodVolumeBackups", func() (err error) {
		live, err = s.PodVolumes.ListBackups(ctx, podvolume.BackupLabels(string(s.Backup.UID)))
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(live, func(a, b velerov1.PodVolumeBackup) int { return strings.Compare(a.Name, b.Name) })
	data, err := encodeRequests(live)
	if err == nil {
		err = s.Holder.Confirm(ctx)
	}
	if err != nil {
		return err
	}
	err = objectstore.CreateBytes(ctx, s.Store, layout.BackupPodVolumeBackups(s.Backup.Name), data)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("store the PodVolumeBackups: %w", err)
	}
	s.requests, err = s.readRequests(ctx)
	return err
}

// listUploads returns the DataUploads of the backup, by their operations.
func (s *State) listUploads(ctx context.Context) (map[string]*v2alpha1.DataUpload, error) {
	isMove := func(op operation.Operation) bool { return op.Action == podvolume.NameUpload }
	if s.PodVolumes == nil || !slices.ContainsFunc(s.Composition.Operations, isMove) {
		return nil, nil
	}
	var live []v2alpha1.DataUpload
	err := retry.Loop{Clock: s.Clock, Log: s.Log}.Do(ctx, "list the DataUploads", func() (err error) {
		live, err = s.PodVolumes.ListUploads(ctx, podvolume.BackupLabels(string(s.Backup.UID)))
		return err
	})
	all := map[string]*v2alpha1.DataUpload{}
	for i := range live {
		all[live[i].Labels[velerov1.LabelAsyncOperation]] = &live[i]
	}
	return all, err
}

// encodeRequests is the file of requests: whole objects, as in Velero 1.18.
func encodeRequests(list []velerov1.PodVolumeBackup) ([]byte, error) {
	for i := range list {
		list[i].ManagedFields = nil
		list[i].SetGroupVersionKind(velerov1.GroupVersion.WithKind("PodVolumeBackup"))
	}
	if list == nil {
		list = []velerov1.PodVolumeBackup{}
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	err := json.NewEncoder(zip).Encode(list)
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, fmt.Errorf("encode the PodVolumeBackups: %w", err)
	}
	return out.Bytes(), nil
}

// Bounds of the file of requests, in bytes: one takes about 2 KiB as text, and 4 KiB decoded.
const (
	maxRequestsText    = 256 << 20
	maxRequestsDecoded = 16 << 20
	maxRequestsLive    = 256 << 20
)

// readRequests reads the file of requests; the error wraps objectstore.ErrNotFound where there is
// none.
func (s *State) readRequests(ctx context.Context) (list []velerov1.PodVolumeBackup, err error) {
	key := layout.BackupPodVolumeBackups(s.Backup.Name)
	in, err := s.Store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	unzip, err := gzip.NewReader(in)
	if err == nil {
		limits := jsonlimit.Limits{Text: maxRequestsText, Element: 1 << 20, Decoded: maxRequestsDecoded, Kept: maxRequestsLive}
		err = jsonlimit.Each(unzip, limits, func(pvb *velerov1.PodVolumeBackup) error {
			if pvb.Labels[velerov1.LabelBackupUID] != string(s.Backup.UID) {
				return fmt.Errorf("PodVolumeBackup %s is of another backup", pvb.Name)
			}
			list = append(list, *pvb)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return list, nil
}

// podVolumeNotes are the errors of a failed operation with requests, one for each volume that is not
// in the backup; none where the requests do not tell.
func (s *State) podVolumeNotes(op *operation.Operation, state *operation.State) (notes []joblog.Entry) {
	if op.Action != podvolume.NameBackup {
		return nil
	}
	for i := range s.requests {
		pvb := &s.requests[i]
		r := podvolume.BackupRequest(pvb)
		if pvb.Spec.Pod.Namespace != op.Item.Namespace || pvb.Spec.Pod.Name != op.Item.Name {
			continue
		}
		reason := r.Failure(state.EndTime)
		switch {
		case reason == "" && r.Ended():
			continue
		case reason == "":
			reason = state.Error
		}
		e := failureOf(op, state)
		e.Message, e.Err = fmt.Sprintf("volume %s: the file-system backup failed (PodVolumeBackup %s)", r.Volume, pvb.Name), reason
		notes = append(notes, e)
	}
	return notes
}

// cancelRequests cancels what calls requested whose answers no record has; the others are cancelled
// with their operations. Requests that are left end with the Backup object, which owns them.
func (s *State) cancelRequests(ctx context.Context) {
	if s.PodVolumes == nil {
		return
	}
	if err := s.PodVolumes.CancelBackups(ctx, s.Backup, "the backup failed: "+s.Failure.Reason); err != nil && ctx.Err() == nil {
		s.Log.WarnContext(ctx, "Failed to cancel the PodVolumeBackups of a failed backup; they may still be running", "error", err)
	}
}
