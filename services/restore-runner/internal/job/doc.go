// Package job carries out Restores, as a kind of job of package engine.
//
// A Restore is admitted when queue-scheduler has validated it and the ledger lists it, or when the
// runner that held it is gone. One write claims it: claim, phase InProgress, startTimestamp. From
// then on the claim alone decides. The lists of steps in steps.go are the life of a restore from there
// to its phase: open, objects, settle, and then end, failure or deleted. The next holder resumes from
// the records in the bucket.
package job
