package layout

// RestoreDir is the prefix of everything of restore r, in the location of its backup, or the one of its mark.
func RestoreDir(r string) string { return RestoresDir + r + "/" }

// RestoreLog is the gzip text log.
func RestoreLog(r string) string { return restoreFile(r, "-logs.gz") }

// RestoreResults is the gzip JSON of warnings and errors.
func RestoreResults(r string) string { return restoreFile(r, "-results.gz") }

// RestoreResourceList is the gzip JSON map of kind to names with their outcome.
func RestoreResourceList(r string) string { return restoreFile(r, "-resource-list.json.gz") }

// RestoreItemOperations is the gzip JSON array of asynchronous operations.
func RestoreItemOperations(r string) string { return restoreFile(r, "-itemoperations.json.gz") }

// RestoreVolumeInfo is the gzip JSON array with one entry for each volume. In Velero's layout it
// alone lacks the "restore-" in front of the name.
func RestoreVolumeInfo(r string) string { return RestoreDir(r) + r + "-volumeinfo.json.gz" }

// RestoreRecordsPrefix is the prefix of the recorded outcomes of single objects.
func RestoreRecordsPrefix(r string) string { return RestoreDir(r) + "records/" }

// RestoreRecords is the prefix of the records of the Restore object with this UID.
func RestoreRecords(r, uid string) string { return RestoreRecordsPrefix(r) + uid + "/" }

// RestoreOwnerFile names the owner of the records of the Restore object with this UID; it is the
// first object among them, and the last to be removed.
func RestoreOwnerFile(r, uid string) string { return RestoreRecords(r, uid) + "owner.json" }

// RestoreOperations is the prefix of the records of the asynchronous operations of the Restore
// object with this UID.
func RestoreOperations(r, uid string) string { return RestoreRecords(r, uid) + "operations/" }

// RestoreName returns the restore a key under restores/ belongs to.
func RestoreName(key string) (string, bool) { return dirName(key, RestoresDir) }

func restoreFile(r, suffix string) string { return RestoreDir(r) + "restore-" + r + suffix }
