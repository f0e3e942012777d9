package service

import "slices"

// unaudited are the methods that change nothing and reveal nothing of what is in a backup: those
// that the chart's role of viewers has, and what async-operation-monitor asks runners over and over.
var unaudited = []string{
	"/holdfast.backup.v1.BackupService/GetProgress",
	"/holdfast.backup.v1.BackupService/WatchProgress",
	"/holdfast.deletion.v1.DeletionService/GetDeletion",
	"/holdfast.operation.v1.OperationMonitorService/ListOperations",
	"/holdfast.operation.v1.OperationMonitorService/WatchOperations",
	"/holdfast.operation.v1.OperationService/GetProgress",
	"/holdfast.queue.v1.QueueService/ExplainBackup",
	"/holdfast.queue.v1.QueueService/ListQueue",
	"/holdfast.queue.v1.QueueService/WatchQueue",
	"/holdfast.restore.v1.RestoreService/GetProgress",
	"/holdfast.restore.v1.RestoreService/WatchProgress",
}

// Audited reports whether each call of a method is logged with who called: those of every method
// that is not known to change and reveal nothing.
func Audited(fullMethod string) bool { return !slices.Contains(unaudited, fullMethod) }
