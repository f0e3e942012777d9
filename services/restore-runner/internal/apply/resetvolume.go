package apply

import velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

const (
	bindCompleted     = "pv.kubernetes.io/bind-completed"
	boundByController = "pv.kubernetes.io/bound-by-controller"
)

// resetVolume frees the volume of the old claim's identity, so that the restored claim of that name
// can bind it.
func resetVolume(obj object, o *ResetOptions) {
	dropKeys(childObject(obj, "metadata", "annotations"), bindCompleted, boundByController)
	claim := childObject(obj, "spec", "claimRef")
	dropKeys(claim, "uid", "resourceVersion")
	if ns := textOf(claim, "namespace"); ns != "" && o.MapNamespace != nil {
		claim["namespace"] = o.MapNamespace(ns)
	}
}

// resetClaim drops what binding, provisioning and the backup of its data left behind; a claim whose volume does not come
// back loses its volume name as well and gets a new one.
func resetClaim(obj object, o *ResetOptions) {
	dropKeys(childObject(obj, "metadata", "annotations"), bindCompleted, boundByController,
		"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner",
		"volume.kubernetes.io/selected-node", velerov1.LabelVolumeSnapshotName, velerov1.AnnotationDataUploadName)
	spec := childObject(obj, "spec")
	if name := textOf(spec, "volumeName"); name != "" && o.Reprovision != nil && o.Reprovision(name) {
		dropKeys(spec, "volumeName")
	}
}
