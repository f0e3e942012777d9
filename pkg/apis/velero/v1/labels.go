package v1

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of Velero 1.18, by exact key. A value that is the name of a backup, restore or location
// goes through LabelValue on write and in selectors; the schedule name is the one exception and is
// written as it is.
const (
	LabelBackupName              = "velero.io/backup-name"
	LabelBackupUID               = "velero.io/backup-uid"
	LabelRestoreName             = "velero.io/restore-name"
	LabelRestoreUID              = "velero.io/restore-uid"
	LabelScheduleName            = "velero.io/schedule-name"
	LabelPodUID                  = "velero.io/pod-uid"
	LabelPVCUID                  = "velero.io/pvc-uid"
	LabelStorageLocation         = "velero.io/storage-location"
	LabelVolumeNamespace         = "velero.io/volume-namespace"
	LabelRepositoryType          = "velero.io/repository-type"
	LabelDataUpload              = "velero.io/data-upload"
	LabelDataUploadSnapshotInfo  = "velero.io/data-upload-snapshot-info" // value "true"
	LabelDataDownload            = "velero.io/data-download"
	LabelAsyncOperationID        = "velero.io/async-operation-id"
	LabelPVCNamespaceName        = "velero.io/pvc-namespace-name"  // value LabelValue("<ns>.<pvc>")
	LabelResourceUsage           = "velero.io/resource-usage"      // value "DataUpload"
	LabelExcludeFromBackup       = "velero.io/exclude-from-backup" // value "true"
	LabelVolumeGroup             = "velero.io/volume-group"        // default volume group snapshot key
	LabelPodVolumeBackup         = "velero.io/pod-volume-backup"
	LabelPodVolumeRestore        = "velero.io/pod-volume-restore"
	LabelVolumeSnapshotName      = "velero.io/volume-snapshot-name"
	LabelDynamicPVRestore        = "velero.io/dynamic-pv-restore"
	LabelGCFailure               = "velero.io/gc-failure"
	LabelCSIVolumeSnapshotClass  = "velero.io/csi-volumesnapshot-class"      // on a VolumeSnapshotClass
	LabelCSIVolumeGroupSnapClass = "velero.io/csi-volumegroupsnapshot-class" // on a VolumeGroupSnapshotClass
	LabelPluginConfig            = "velero.io/plugin-config"                 // on a plugin's ConfigMap
	LabelRepoName                = "velero.io/repo-name"
	LabelComponent               = "component" // value "velero" on everything Velero's installer makes
)

// Values of LabelGCFailure: why an expired backup was not deleted.
const (
	GCFailureLocationNotFound  = "BSLNotFound"
	GCFailureLocationCannotGet = "BSLCannotGet"
	GCFailureLocationReadOnly  = "BSLReadOnly"
)

// Annotations of Velero 1.18, by exact key.
const (
	AnnotationSourceClusterGitVersion   = "velero.io/source-cluster-k8s-gitversion"
	AnnotationSourceClusterMajorVersion = "velero.io/source-cluster-k8s-major-version"
	AnnotationSourceClusterMinorVersion = "velero.io/source-cluster-k8s-minor-version"
	AnnotationResourceTimeout           = "velero.io/resource-timeout"
	AnnotationPodVolumeTimeout          = "velero.io/pod-volume-timeout"
	AnnotationBackupVolumes             = "backup.velero.io/backup-volumes"
	AnnotationBackupVolumesExcludes     = "backup.velero.io/backup-volumes-excludes"
	AnnotationMustIncludeAdditional     = "backup.velero.io/must-include-additional-items"
	AnnotationSkippedNoCSIPV            = "backup.velero.io/skipped-no-csi-pv"
	AnnotationSkipFromBackup            = "velero.io/skip-from-backup"
	AnnotationRestoreStatus             = "velero.io/restore-status" // "true" or "false", per object
	AnnotationOriginalPVName            = "velero.io/original-pv-name"
	AnnotationPVCName                   = "velero.io/pvc-name" // on PodVolumeBackups
	AnnotationDataUploadName            = "velero.io/data-upload-name"
	AnnotationCSISnapshotHandle         = "velero.io/csi-volumesnapshot-handle"
	AnnotationCSISnapshotRestoreSize    = "velero.io/csi-volumesnapshot-restore-size"
	AnnotationCSIDriverName             = "velero.io/csi-driver-name"
	AnnotationCSIDeletionPolicy         = "velero.io/csi-vsc-deletion-policy"
	AnnotationCSIGroupSnapshotHandle    = "velero.io/csi-volumegroupsnapshot-handle"
	AnnotationCSISnapshotClass          = "velero.io/csi-volumesnapshot-class"        // on a PVC
	AnnotationCSIGroupSnapshotClass     = "velero.io/csi-volume-group-snapshot-class" // on a PVC
	// On a Backup, followed by the driver's name.
	AnnotationCSISnapshotClassPrefix      = "velero.io/csi-volumesnapshot-class_"
	AnnotationCSIGroupSnapshotClassPrefix = "velero.io/csi-volumegroupsnapshot-class_"
)

// Prefixes of the hook annotations on Pods. The un-prefixed form acts as the pre-backup hook.
const (
	AnnotationPreBackupHookPrefix   = "pre.hook.backup.velero.io/"
	AnnotationPostBackupHookPrefix  = "post.hook.backup.velero.io/"
	AnnotationBackupHookPrefix      = "hook.backup.velero.io/"
	AnnotationPostRestoreHookPrefix = "post.hook.restore.velero.io/"
	AnnotationInitRestoreHookPrefix = "init.hook.restore.velero.io/"
)

// RestoreFinalizer is on every Restore whose files in the bucket are to be removed with it.
const RestoreFinalizer = "restores.velero.io/external-resources-finalizer"

// Prefixes of the operation ids of the built-in data mover.
const (
	OperationIDPrefixDataUpload   = "du-"
	OperationIDPrefixDataDownload = "dd-"
)

// DefaultNamespace is the server's namespace unless configured otherwise.
const DefaultNamespace = "velero"

// hashedNameLength is how much of a long name LabelValue keeps in clear text; the digits of the
// hash fill the rest of the 63 characters.
const hashedNameLength = 57

// LabelValue returns the label value of a name: the name itself up to 63 characters,
// else its first 57 characters followed by the first six hexadecimal digits of its SHA-256 (Velero
// 1.18's rule for every label whose value is a name).
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digits := hex.EncodeToString(sum[:])
	return name[:hashedNameLength] + digits[:validation.LabelValueMaxLength-hashedNameLength]
}
