// Package job carries out Restores, as a kind of job of package engine.
//
// A Restore is admitted when queue-scheduler has validated it and the ledger lists it, or when the
// runner that held it is gone. One write claims it: claim, phase InProgress, startTimestamp. From
// then on the claim alone decides. The lists of steps in steps.go are the life of a restore from there
// to its phase: open, objects, settle, and then end, failure or deleted. The next holder resumes from
// the records in the bucket.
//
// A bucket that does not answer is retried for StorePatience, and then:
//
//	while the restore opens or plans      Failed, with the error
//	when an object's body is read         an error of that object, and of those after it at once
//	when outcomes are stored              Failed, with the error; no object is created meanwhile
//	when log and results are stored       the phase is written without these files
//	in WaitingForPluginOperations         async-operation-monitor retries without a limit
package job
