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
	LabelBackupName             = "velero.io/backup-name"
	LabelBackupUID              = "velero.io/backup-uid"
	LabelRestoreName            = "velero.io/restore-name"
	LabelRestoreUID             = "velero.io/restore-uid"
	LabelClaimUID               = "velero.io/pvc-uid" // on PodVolumeBackups and PodVolumeRestores
	LabelPodUID                 = "velero.io/pod-uid" // on PodVolumeRestores
	LabelScheduleName           = "velero.io/schedule-name"
	LabelStorageLocation        = "velero.io/storage-location"
	LabelExcludeFromBackup      = "velero.io/exclude-from-backup" // value "true"
	LabelVolumeGroup            = "velero.io/volume-group"        // default volume group snapshot key
	LabelVolumeSnapshotName     = "velero.io/volume-snapshot-name"
	LabelPVCUID                 = "velero.io/pvc-uid"
	LabelGCFailure              = "velero.io/gc-failure"
	LabelCSIVolumeSnapshotClass = "velero.io/csi-volumesnapshot-class" // on a VolumeSnapshotClass
	LabelPodVolumeBackup        = "velero.io/pod-volume-backup"        // on a mover Pod
	LabelPodVolumeRestore       = "velero.io/pod-volume-restore"       // on a mover Pod
	LabelDataUpload             = "velero.io/data-upload"              // on a mover Pod
	LabelDataDownload           = "velero.io/data-download"            // on a mover Pod
	LabelAsyncOperation         = "velero.io/async-operation-id"       // on DataUploads and DataDownloads
	LabelDynamicPV              = "velero.io/dynamic-pv-restore"       // in the selector of a claim that a DataDownload fills, and on its volume
	LabelVolumeNamespace        = "velero.io/volume-namespace"         // on a BackupRepository
	LabelRepositoryType         = "velero.io/repository-type"          // on a BackupRepository
	LabelComponent              = "component"                          // value "velero" on everything Velero's installer makes
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
	AnnotationBackupVolumes             = "backup.velero.io/backup-volumes"
	AnnotationBackupVolumesExcludes     = "backup.velero.io/backup-volumes-excludes"
	AnnotationPodVolumeTimeout          = "velero.io/pod-volume-timeout" // on a Backup or Restore
	AnnotationMustIncludeAdditional     = "backup.velero.io/must-include-additional-items"
	AnnotationSkipFromBackup            = "velero.io/skip-from-backup"
	AnnotationOriginalPVName            = "velero.io/original-pv-name"
	AnnotationPVCName                   = "velero.io/pvc-name" // on PodVolumeBackups
	AnnotationDataUploadName            = "velero.io/data-upload-name"
	AnnotationCSISnapshotHandle         = "velero.io/csi-volumesnapshot-handle"
	AnnotationCSISnapshotRestoreSize    = "velero.io/csi-volumesnapshot-restore-size"
	AnnotationCSIDriverName             = "velero.io/csi-driver-name"
	AnnotationCSIDeletionPolicy         = "velero.io/csi-vsc-deletion-policy"
	AnnotationCSIGroupSnapshotHandle    = "velero.io/csi-volumegroupsnapshot-handle"
	AnnotationCSISnapshotClass          = "velero.io/csi-volumesnapshot-class" // on a PVC
	// On a Backup, followed by the driver's name.
	AnnotationCSISnapshotClassPrefix = "velero.io/csi-volumesnapshot-class_"
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
