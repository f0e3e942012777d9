package layout

import (
	"errors"
	"fmt"
)

// ErrUnknownKind means that a download target's kind is none of Velero's.
var ErrUnknownKind = errors.New("unknown download target kind")

// backupDownloads and restoreDownloads map a DownloadRequest's target kind to its object (Velero
// 1.18).
var (
	backupDownloads = map[string]func(string) string{
		"BackupLog":                       BackupLog,
		"BackupContents":                  BackupTarball,
		"BackupVolumeSnapshots":           BackupVolumeSnapshots,
		"BackupItemOperations":            BackupItemOperations,
		"BackupResourceList":              BackupResourceList,
		"BackupResults":                   BackupResults,
		"BackupVolumeInfos":               BackupVolumeInfo,
		"CSIBackupVolumeSnapshots":        BackupCSISnapshots,
		"CSIBackupVolumeSnapshotContents": BackupCSISnapshotContents,
	}
	restoreDownloads = map[string]func(string) string{
		"RestoreLog":            RestoreLog,
		"RestoreResults":        RestoreResults,
		"RestoreResourceList":   RestoreResourceList,
		"RestoreItemOperations": RestoreItemOperations,
		"RestoreVolumeInfo":     RestoreVolumeInfo,
	}
)

// IsRestoreKind reports whether a download target's kind names a file of a restore rather than of a
// backup.
func IsRestoreKind(kind string) bool {
	_, ok := restoreDownloads[kind]
	return ok
}

// ForDownload returns the key of a DownloadRequest's target. Errors wrap ErrUnknownKind or
// ErrInvalidName.
func ForDownload(kind, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if key, ok := backupDownloads[kind]; ok {
		return key(name), nil
	}
	if key, ok := restoreDownloads[kind]; ok {
		return key(name), nil
	}
	return "", fmt.Errorf("%w: %q", ErrUnknownKind, kind)
}
