// Package holdfast names what Holdfast adds to objects of group velero.io. Nothing here is needed
// to read a backup: Velero ignores all of it. It makes the
// Backup that a Schedule describes (ScheduledBackup).
package holdfast

// Prefix begins every annotation and label of Holdfast.
const Prefix = "holdfast.io/"

// Annotations of Holdfast.
const (
	// AnnotationClaim holds who works on a Backup or Restore: holder, address and epoch as JSON. It
	// is written in the same patch as the phase.
	AnnotationClaim = "holdfast.io/claim"
	// AnnotationQueueSequence is the number a job got from the ledger's counter; it decides the
	// order among jobs of one priority and never changes.
	AnnotationQueueSequence = "holdfast.io/queue-sequence"
	// AnnotationNamespaces holds the namespaces a Backup was admitted for, or those
	// a Restore writes to, as a sorted JSON list of names or ["*"], before which
	// "!name" leaves a namespace out. It is written
	// in the same patch as ReadyToStart, on a Restore when it is validated, and
	// left out above 128 KiB.
	AnnotationNamespaces = "holdfast.io/namespaces"
	// AnnotationPriority is high, normal (the default) or low. A more urgent backup goes first, but
	// never past a waiting one it overlaps with.
	AnnotationPriority = "holdfast.io/priority"
	// AnnotationOperations summarises asynchronous operations as JSON.
	AnnotationOperations = "holdfast.io/operations"
	// AnnotationAddress, on the Lease of an instance or of a duty: where the instance answers gRPC, as host:port.
	AnnotationAddress = "holdfast.io/address"
	// AnnotationPlan names the stored plan that a Backup or Restore executes. The log lists how a Backup
	// differs; an outcome of a Restore that is not as planned is a warning.
	AnnotationPlan = "holdfast.io/plan"
	// AnnotationPlanStrict ("true") beside it fails a job that would do other than the plan says.
	AnnotationPlanStrict = "holdfast.io/plan-strict"
	// AnnotationDryRun ("true") on a Backup or Restore has it be planned only: it ends as FailedValidation
	// with the summary and the id of the plan.
	AnnotationDryRun = "holdfast.io/dry-run"
	// AnnotationPlanDifferences on a Backup that executed a plan says how they differ.
	AnnotationPlanDifferences = "holdfast.io/plan-differences"
	// AnnotationCancel asks for a job that has not ended to be stopped: who asks, and when, and the
	// object's UID, as JSON, or any other text but "false", as a person might set it.
	AnnotationCancel = "holdfast.io/cancel"
	// AnnotationCommitting is the epoch in which a job began to commit what it did, a space, and
	// the object's UID. A request to cancel that comes later is not obeyed.
	AnnotationCommitting = "holdfast.io/committing"
	// AnnotationValidated on a Restore holds the UID of the Restore whose computed spec was written: it
	// is not validated again (the filled-in scheduleName would fail), and a copy of it is. On a Backup that
	// is a dry run it says so too.
	AnnotationValidated = "holdfast.io/validated"
	// AnnotationWaits is what a Restore that has not ended waits for, and since when, with the object's
	// UID, as JSON. queue-scheduler writes it while the Restore is New, its holder afterwards.
	AnnotationWaits = "holdfast.io/waits"
	// AnnotationPaused marks a Restore that created objects paused, or is about to, and has not
	// resumed all of them: the location whose records say how that is done, and the object's UID,
	// as JSON.
	AnnotationPaused = "holdfast.io/paused"
	// AnnotationFilesLocation on a Restore names the location that has its files and records, where the one of
	// its backup refuses them, with the object's UID, as JSON.
	AnnotationFilesLocation = "holdfast.io/files-location"
	// AnnotationPostHooks marks a Backup whose Pods may lack their post hooks since it ended without
	// the runner that ran their pre hooks, or whose post hooks ran before what they follow: which of
	// them, and the object's UID, as JSON.
	AnnotationPostHooks = "holdfast.io/post-hooks"
	// AnnotationTarballBytes is the size of the tarball of a Backup that ended, where it has one, in
	// bytes.
	AnnotationTarballBytes = "holdfast.io/tarball-bytes"
	// AnnotationVerified is the outcome of the last scheduled verification of a Backup, as JSON, with the
	// object's UID: what another object was copied with says nothing.
	AnnotationVerified = "holdfast.io/verified"
	// AnnotationIgnoreRunning ("true") lets a restore start beside running backups that overlap
	// with it.
	AnnotationIgnoreRunning = "holdfast.io/ignore-running"
	// AnnotationOrder on a Restore is the order of its objects: stages (the default), owners or
	// velero.
	AnnotationOrder = "holdfast.io/order"
	// AnnotationRunAgain on a Restore lists resources ("workflows.argoproj.io", or "*") that are
	// restored although their objects would run again.
	AnnotationRunAgain = "holdfast.io/run-again"
	// AnnotationRunningJobs on a Restore says what becomes of Jobs that ran when they were backed
	// up: start (the default), suspend or skip.
	AnnotationRunningJobs = "holdfast.io/running-jobs"
	// AnnotationPreserveAddresses ("true") on a Restore keeps the cluster IPs and node ports of
	// Services where they are free.
	AnnotationPreserveAddresses = "holdfast.io/preserve-addresses"
	// AnnotationOverwriteVolumes ("true") on a Restore has the files of volumes that are not empty be
	// replaced by those of file-system backups; without it such a volume is an error.
	AnnotationOverwriteVolumes = "holdfast.io/overwrite-volumes"
	// AnnotationItems on a Restore lists objects of the backup, and the Restore takes these alone:
	// KIND/NAMESPACE/NAME, or KIND/NAME of a cluster-scoped one, separated by commas.
	AnnotationItems = "holdfast.io/items"
	// AnnotationItemsWith on such a Restore lists what comes along: dependencies, children or both.
	AnnotationItemsWith = "holdfast.io/items-with"
	// AnnotationFiles on a Restore names files and directories in the volumes of claims, and the Restore writes these
	// alone into the volumes that Pods have mounted now: {"NAMESPACE/CLAIM": ["PATH"]} as JSON.
	AnnotationFiles = "holdfast.io/files"
	// AnnotationSpreadWindow on a Schedule is a duration ("30m"). Its backups start after the slot
	// by a part of it that the Schedule's UID decides.
	AnnotationSpreadWindow = "holdfast.io/spread-window"
	// AnnotationConcurrencyPolicy on a Schedule is Forbid (the default: a slot waits while a backup
	// of the schedule waits or runs) or Allow.
	AnnotationConcurrencyPolicy = "holdfast.io/concurrency-policy"
	// AnnotationPendingSlot on a Schedule is the slot whose Backup is promised and not known to
	// exist yet, as RFC 3339. It is written in the same patch as status.lastBackup.
	AnnotationPendingSlot = "holdfast.io/pending-slot"
	// AnnotationActiveSchedule on a Schedule is the cron expression whose slots count since
	// validation last accepted a change; empty while the Schedule is paused or invalid.
	AnnotationActiveSchedule = "holdfast.io/active-schedule"
	// AnnotationCatchUp ("true") on a Schedule makes up, with one Backup, for slots that passed while
	// it was paused or invalid or had another expression.
	AnnotationCatchUp = "holdfast.io/catch-up"
	// AnnotationSkipDeleteActions ("true") on a DeleteBackupRequest or a Backup lets the deletion
	// go on without the delete item actions of plugins.
	AnnotationSkipDeleteActions = "holdfast.io/skip-delete-actions"
	// AnnotationLeaveVolumeData ("true") on a Backup or DeleteBackupRequest lets the backup be
	// deleted although it has volume data that cannot be removed: CSI snapshots, PodVolumeBackups
	// or DataUploads. That data stays where it is.
	AnnotationLeaveVolumeData = "holdfast.io/leave-volume-data"
	// AnnotationDefault marks the location that was accepted last as the default. Its value is what
	// --default-backup-storage-location was then.
	AnnotationDefault = "holdfast.io/default-accepted"
	// AnnotationWithdrawn on a location is when spec.default was last taken off in favour of another
	// one, as RFC 3339, after WithdrawnRepeatedly where it was set again and again.
	AnnotationWithdrawn = "holdfast.io/default-withdrawn"
	// AnnotationObjectStore ("plugin") on a location makes the plugin of its provider's name serve
	// it instead of the built-in store.
	AnnotationObjectStore = "holdfast.io/object-store"
	// AnnotationMaintenanceStopped on a BackupRepository is when another program was seen to maintain
	// the repository, as RFC 3339. It is maintained again once a user has removed it.
	AnnotationMaintenanceStopped = "holdfast.io/maintenance-stopped"
)

// RestoreChoices are the annotations of a Restore that change what it does to the cluster.
var RestoreChoices = []string{
	AnnotationOrder, AnnotationRunAgain, AnnotationRunningJobs, AnnotationPreserveAddresses, AnnotationOverwriteVolumes, AnnotationItems, AnnotationItemsWith, AnnotationFiles,
}

// WithdrawnRepeatedly begins the value of AnnotationWithdrawn on a location that something keeps making the
// default: it does not become that any more.
const WithdrawnRepeatedly = "repeatedly "

// ProviderFile is the provider of locations in a directory: spec.config.path is the directory, the
// bucket a directory in it.
const ProviderFile = "holdfast.io/file"
