// Package engine runs jobs: a Backup, a Restore or a DeleteBackupRequest that one process at a time
// works on.
//
// An Engine observes the objects of one kind through the cache, takes the hints of the message bus,
// finds jobs that no message announced, and takes over those of instances that died. It claims a
// job in the write that begins it, guards the claim, passes on requests to cancel, gives a job that
// has to stop a grace period, releases the claim of a job that panicked or did not end, and gives a job up after
// three panics without progress. What a job does and how it ends is decided by its Kind: the engine is independent of stores,
// journals and phases.
package engine
