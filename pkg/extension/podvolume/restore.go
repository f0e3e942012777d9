package podvolume

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// KindRestore is what the restore's action would be registered as if a plugin had it, see
// action.Operation.
const KindRestore = "RestoreItemActionV2"

// RestoreJob is the restore as its requests know it.
type RestoreJob struct {
	Name string
	UID  types.UID
	// Namespace is the server's, Location that of the backup.
	Namespace, Location string
	// Settings are spec.uploaderSettings of the requests.
	Settings map[string]string
}

// Keys of spec.uploaderSettings. The first two are Velero 1.18's.
const (
	settingSparse    = "WriteSparseFiles"
	settingParallel  = "ParallelFilesDownload"
	settingOverwrite = "Overwrite"
)

// RestoreSettings are spec.uploaderSettings of the requests of a restore; overwrite has files of a
// volume that is not empty be replaced.
func RestoreSettings(config *velerov1.UploaderConfigForRestore, overwrite bool) map[string]string {
	settings := map[string]string{}
	if config != nil {
		settings[settingSparse] = strconv.FormatBool(ptr.Deref(config.WriteSparseFiles, false))
		if n := config.ParallelFilesDownload; n > 0 {
			settings[settingParallel] = strconv.Itoa(n)
		}
	}
	if overwrite {
		settings[settingOverwrite] = "true"
	}
	return settings
}

// RestoredVolume is a volume of a restored Pod, and the snapshot that it is filled from.
type RestoredVolume struct {
	// Pod is named as in the cluster.
	Pod    types.NamespacedName
	PodUID types.UID
	// Volume is the name in the Pod. Claim is empty for a volume that is none.
	Volume, Claim string
	// Source is the namespace in the backup.
	Source   string
	Snapshot string
	// Size is in bytes, 0 where it is not known.
	Size int64
	// ClaimUID is that of the claim in the backup; empty for a volume that is none.
	ClaimUID string
}

// identifyRequest tells the request from all others of all restores. The Pods that mount one claim have one
// request.
func (v *RestoredVolume) identifyRequest(restore types.UID) string {
	if v.Claim != "" {
		return string(restore) + "/" + v.Pod.Namespace + "/claim/" + v.Claim
	}
	return string(restore) + "/" + v.Pod.Namespace + "/pod/" + v.Pod.Name + "/" + v.Volume
}

// OperationID is the identifier of the operation that fills a volume.
func (j *RestoreJob) OperationID(v *RestoredVolume) string {
	return RestoreOperationID(Hash(v.identifyRequest(j.UID)), 1)
}

// Request is the PodVolumeRestore of a volume: the same for every attempt of the restore.
func (j *RestoreJob) Request(v *RestoredVolume) *velerov1.PodVolumeRestore {
	labels := map[string]string{
		velerov1.LabelRestoreName: velerov1.LabelValue(j.Name), velerov1.LabelRestoreUID: string(j.UID),
		velerov1.LabelPodUID: string(v.PodUID), LabelOperation: Hash(v.identifyRequest(j.UID)),
	}
	if v.ClaimUID != "" {
		labels[velerov1.LabelClaimUID] = v.ClaimUID
	}
	return &velerov1.PodVolumeRestore{
		TypeMeta: metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "PodVolumeRestore"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: RequestName(j.Name, v.identifyRequest(j.UID)), Labels: labels,
			// The Restore is the first owner: its UID names the done file, for which the Pod waits.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: velerov1.GroupVersion.String(), Kind: "Restore", Name: j.Name, UID: j.UID, Controller: ptr.To(true),
			}},
		},
		Spec: velerov1.PodVolumeRestoreSpec{
			Pod:    corev1.ObjectReference{Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.PodUID},
			Volume: v.Volume, BackupStorageLocation: j.Location, UploaderType: "kopia",
			SnapshotID: v.Snapshot, SnapshotSize: v.Size, SourceNamespace: v.Source, UploaderSettings: j.Settings,
		},
	}
}
