package layout

import (
	"fmt"
	"strings"
)

// BackupDir is the prefix of everything of backup b.
func BackupDir(b string) string { return BackupsDir + b + "/" }

// BackupMetadata is velero-backup.json, the Backup object as uncompressed JSON. Its existence
// commits the backup.
func BackupMetadata(b string) string { return BackupDir(b) + "velero-backup.json" }

// BackupTarball is the gzip tar of all items.
func BackupTarball(b string) string { return backupFile(b, ".tar.gz") }

// BackupLog is the gzip text log.
func BackupLog(b string) string { return backupFile(b, "-logs.gz") }

// BackupResults is the gzip JSON of warnings and errors.
func BackupResults(b string) string { return backupFile(b, "-results.gz") }

// BackupResourceList is the gzip JSON map of kind to names.
func BackupResourceList(b string) string { return backupFile(b, "-resource-list.json.gz") }

// BackupVolumeInfo is the gzip JSON array with one entry for each volume.
func BackupVolumeInfo(b string) string { return backupFile(b, "-volumeinfo.json.gz") }

// BackupItemOperations is the gzip JSON array of asynchronous operations.
func BackupItemOperations(b string) string { return backupFile(b, "-itemoperations.json.gz") }

// BackupVolumeSnapshots is the gzip JSON array of native volume snapshots.
func BackupVolumeSnapshots(b string) string { return backupFile(b, "-volumesnapshots.json.gz") }

// BackupPodVolumeBackups is the gzip JSON array of PodVolumeBackup objects.
func BackupPodVolumeBackups(b string) string { return backupFile(b, "-podvolumebackups.json.gz") }

// BackupCSISnapshots is the gzip JSON array of VolumeSnapshots that Velero wrote up to 1.16.
func BackupCSISnapshots(b string) string { return backupFile(b, "-csi-volumesnapshots.json.gz") }

// BackupCSISnapshotContents is the gzip JSON array of VolumeSnapshotContents that Velero wrote up
// to 1.16.
func BackupCSISnapshotContents(b string) string {
	return backupFile(b, "-csi-volumesnapshotcontents.json.gz")
}

// BackupManifest is Holdfast's manifest of the tarball.
func BackupManifest(b string) string { return BackupDir(b) + "manifest.json.gz" }

// BackupRebuiltManifest is a manifest that was made from the tarball later, because BackupManifest is
// absent or damaged. It goes with the backup's directory.
func BackupRebuiltManifest(b string) string { return BackupDir(b) + "manifest-rebuilt.json.gz" }

// OwnerFile reserves the backup's name for one cluster and object; it is the first object of a
// backup.
func OwnerFile(b string) string { return BackupDir(b) + "holdfast-owner.json" }

// PartsDir is the prefix of the parts of every attempt at b, whatever the object's UID was.
func PartsDir(b string) string { return BackupDir(b) + "parts/" }

// PartsPrefix is the prefix of parts, sidecars and records of the Backup object with this UID.
func PartsPrefix(b, uid string) string { return PartsDir(b) + uid + "/" }

// Part is one immutable run of gzip members written by the holder of epoch. Unit names a piece of
// work in characters that a key may hold, without slashes.
func Part(b, uid string, epoch int64, unit string, attempt, n int) string {
	return fmt.Sprintf("%s%d-%s-%d-%d", PartsPrefix(b, uid), epoch, unit, attempt, n)
}

const sidecarSuffix = ".sidecar"

// Sidecar is the immutable companion of a part: manifest entries, log lines, results and counts.
func Sidecar(part string) string { return part + sidecarSuffix }

// CheckpointPrefix is the prefix of all checkpoints of a backup, whatever their epoch; listed in
// order of epoch, then sequence.
func CheckpointPrefix(b, uid string) string { return PartsPrefix(b, uid) + "checkpoint-" }

// Checkpoint is one immutable progress record of the holder of epoch; seq counts from 1 without
// gaps.
func Checkpoint(b, uid string, epoch, seq int64) string {
	return fmt.Sprintf("%s%010d-%010d", CheckpointPrefix(b, uid), epoch, seq)
}

// Composition is the record that fixes the order of parts before anything is published.
func Composition(b, uid string) string { return PartsPrefix(b, uid) + "composition" }

// Failure is the record of why a backup fails although its composition was fixed.
func Failure(b, uid string) string { return PartsPrefix(b, uid) + "failure" }

// BackupOperations is the prefix of the records of the asynchronous operations of the Backup object
// with this UID.
func BackupOperations(b, uid string) string { return PartsPrefix(b, uid) + "operations/" }

// PostOperation is the record that names the part with what was stored again once the operations of
// the backup had ended.
func PostOperation(b, uid string) string { return PartsPrefix(b, uid) + "post-operation" }

// PostHooks is where a holder of a backup that fails records that it runs the post hooks the backup
// owes, PostHooksEnded that all have run.
func PostHooks(b, uid string, epoch int64) string {
	return fmt.Sprintf("%spost-hooks-%010d", PartsPrefix(b, uid), epoch)
}

// PostHooksEnded is described with PostHooks.
func PostHooksEnded(b, uid string) string { return PartsPrefix(b, uid) + "post-hooks-ended" }

// DeletionDir is the prefix of what the deletion of b has to remember. It goes with the backup,
// after its data.
func DeletionDir(b string) string { return BackupDir(b) + "deletion/" }

// DeletionSnapshots is the prefix of the records of which native snapshots of the backup with this
// UID are deleted.
func DeletionSnapshots(b, uid string) string { return DeletionDir(b) + "snapshots/" + uid + "/" }

// BackupName returns the backup a key under backups/ belongs to.
func BackupName(key string) (string, bool) { return dirName(key, BackupsDir) }

func backupFile(b, suffix string) string { return BackupDir(b) + b + suffix }

func dirName(key, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(key, dir)
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, "/")
	return name, ok && name != ""
}
