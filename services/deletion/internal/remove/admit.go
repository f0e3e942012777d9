package remove

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// refusalNotFound is the error of a request for an absent backup (Velero 1.18).
const refusalNotFound = "backup not found"

// deletionJob is one attempt to carry out a request.
type deletionJob struct {
	remover  *Remover
	held     *engine.Held[*velerov1.DeleteBackupRequest] // once it is claimed
	request  *velerov1.DeleteBackupRequest
	backup   *velerov1.Backup
	location *velerov1.BackupStorageLocation // nil when nothing was ever written
	// resumed: the Backup went while its deletion was under way; backup holds no more than name and
	// UID.
	resumed bool
	// snapshots: it has CSI snapshots that can be removed.
	snapshots bool
	// files are the snapshots of Pod volumes that can be removed.
	files snapshotSet
	// checked: the backup has no volume data that would be left behind.
	checked bool
	// permanent: it has, and another request would end the same way.
	permanent bool
}

// admitRequest checks whether the backup may be deleted now. refusal is the request's error if not (texts
// as Velero 1.18's where it has one).
func (r *Remover) admitRequest(ctx context.Context, req *velerov1.DeleteBackupRequest) (_ *deletionJob, refusal string, err error) {
	name := req.Spec.BackupName
	if name == "" {
		return nil, "spec.backupName is required", nil
	}
	if err := layout.CheckName(name); err != nil {
		return nil, fmt.Sprintf("spec.backupName: %v", err), nil
	}
	backup := &velerov1.Backup{}
	err = r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, backup)
	uid := req.Labels[velerov1.LabelBackupUID]
	replaced := err == nil && uid != "" && uid != string(backup.UID)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, "", err
	case (err != nil || replaced) && req.Status.Phase == velerov1.DeleteBackupRequestPhaseInProgress:
		return r.resumeDeletion(ctx, req)
	case err != nil:
		return nil, refusalNotFound, nil
	case replaced:
		return nil, "backup not found: another one has its name now", nil
	}
	if refusal, err = r.unfitReason(ctx, req, backup); refusal != "" || err != nil {
		return nil, refusal, err
	}
	j := &deletionJob{remover: r, request: req, backup: backup}
	if NeverWritten(backup) {
		return j, "", nil
	}
	if refusal, err = j.admitLocation(ctx); refusal != "" || err != nil {
		return j, refusal, err
	}
	if left := j.admitVolumeData(ctx); left != nil {
		j.permanent = true
		return j, left.Error(), nil
	}
	return j, "", nil
}

// unfitReason returns why the backup cannot be deleted now, "" if it can. One that is Deleting already
// cannot be refused any more; what stands in the way of it is waited for.
func (r *Remover) unfitReason(ctx context.Context, req *velerov1.DeleteBackupRequest, b *velerov1.Backup) (refusal string, err error) {
	if Running(b) {
		return errRunning.Error(), nil
	}
	if problem := checkSkip(req); problem != "" {
		return problem, nil
	}
	if problem := checkSkip(b); problem != "" {
		return "backup: " + problem, nil
	}
	return r.Restoring(ctx, b)
}

// resumeDeletion continues a deletion whose Backup is gone: as its last step, or because a client
// deleted the object meanwhile. What is left of its data is recognised by the UID alone.
func (r *Remover) resumeDeletion(ctx context.Context, req *velerov1.DeleteBackupRequest) (_ *deletionJob, refusal string, err error) {
	j := &deletionJob{remover: r, request: req, backup: &velerov1.Backup{}, resumed: true}
	j.backup.Name, j.backup.Namespace, j.backup.UID = req.Spec.BackupName, req.Namespace, types.UID(req.Labels[velerov1.LabelBackupUID])
	name := req.Annotations[annotationLocation]
	if name == "" || j.backup.UID == "" {
		return j, "", nil
	}
	j.backup.Spec.StorageLocation = name
	loc, err := r.Locations.Get(ctx, name)
	if err == nil {
		j.location = loc
	}
	return j, "", client.IgnoreNotFound(err)
}

func (j *deletionJob) admitLocation(ctx context.Context) (refusal string, err error) {
	name := j.backup.Spec.StorageLocation
	loc, err := j.remover.Locations.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("backup storage location %q not found", name), nil
	case err != nil:
		return "", err
	case loc.Spec.AccessMode == velerov1.LocationModeReadOnly:
		return fmt.Sprintf("cannot delete backup because backup storage location %q is in read-only mode", name), nil
	case loc.Status.Phase == velerov1.LocationPhaseUnavailable:
		return fmt.Sprintf("cannot delete backup because backup storage location %q is unavailable: %s", name, loc.Status.Message), nil
	}
	j.location = loc
	return "", nil
}

// Running reports whether a process works on the backup, or will: it can be cancelled first, which
// cancels its operations. One that another server left in such a phase is ended by a runner.
func Running(b *velerov1.Backup) bool {
	switch b.Status.Phase {
	case velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
		return true
	}
	return false
}

// NeverWritten reports that no runner ever had the backup: whatever the bucket holds under its name
// is not its own.
func NeverWritten(b *velerov1.Backup) bool {
	return b.Status.StartTimestamp == nil && b.Status.Phase != velerov1.BackupPhaseCompleted &&
		b.Status.Phase != velerov1.BackupPhasePartiallyFailed
}

// errRunning is the error of a request for a backup that is being written (Velero 1.18).
var errRunning = errors.New("backup is still in progress")

// markDeleting is the swap against a runner that would start the backup: the first write wins.
func (j *deletionJob) markDeleting(ctx context.Context) error {
	return kube.Update(ctx, j.remover.Reader, j.remover.Client, j.backup, func(b *velerov1.Backup) error {
		if Running(b) {
			return errRunning
		}
		if b.Status.Phase == velerov1.BackupPhaseDeleting {
			return kube.ErrSkip
		}
		b.Status.Phase = velerov1.BackupPhaseDeleting
		return nil
	})
}
