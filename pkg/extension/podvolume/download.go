package podvolume

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// MovedVolume is a claim that is filled from a moved snapshot.
type MovedVolume struct {
	// Claim is named as in the cluster.
	Claim types.NamespacedName
	// ClaimUID is that of the claim in the backup; empty where it is not known.
	ClaimUID types.UID
	// Upload is the DataUpload that took the data.
	Upload *v2alpha1.DataUpload
	// Timeout bounds each step that Velero's node-agent waits for.
	Timeout time.Duration
}

// requestIdentity tells the request from all others of all restores.
func (v *MovedVolume) requestIdentity(restore types.UID) string {
	return string(restore) + "/" + v.Claim.String()
}

// SelectorValue is what the selector of the claim asks of its volume: no provisioner and no other volume
// serves such a claim.
func (j *RestoreJob) SelectorValue(v *MovedVolume) string {
	return velerov1.LabelValue(v.Claim.Namespace + "." + v.Claim.Name + "." + hexDigits(v.requestIdentity(j.UID), digitsLength))
}

// DownloadID is the identifier of the operation that fills the claim (Velero 1.18).
func (j *RestoreJob) DownloadID(v *MovedVolume) string {
	return moveOperationID(prefixDownload, j.UID, cmp.Or(v.ClaimUID, types.UID(hexDigits(v.Claim.String(), hashLength))))
}

// Download is the DataDownload of a claim: the same for every attempt of the restore.
func (j *RestoreJob) Download(v *MovedVolume) *v2alpha1.DataDownload {
	return &v2alpha1.DataDownload{
		TypeMeta: metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DataDownload"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: RequestName(j.Name, v.requestIdentity(j.UID)),
			Labels: map[string]string{
				velerov1.LabelRestoreName: velerov1.LabelValue(j.Name), velerov1.LabelRestoreUID: string(j.UID),
				velerov1.LabelAsyncOperation: j.DownloadID(v),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: velerov1.GroupVersion.String(), Kind: "Restore", Name: j.Name, UID: j.UID, Controller: ptr.To(true),
			}},
		},
		Spec: v2alpha1.DataDownloadSpec{
			TargetVolume:          v2alpha1.TargetVolumeSpec{Namespace: v.Claim.Namespace, PVC: v.Claim.Name},
			BackupStorageLocation: j.Location, DataMover: v.Upload.Spec.DataMover, SnapshotID: v.Upload.Status.SnapshotID,
			SourceNamespace: v.Upload.Spec.SourceNamespace, DataMoverConfig: j.Settings, NodeOS: v.Upload.Status.NodeOS,
			SnapshotSize: v.Upload.Status.Progress.TotalBytes, OperationTimeout: metav1.Duration{Duration: v.Timeout},
		},
	}
}
