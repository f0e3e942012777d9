// Package job runs Restore objects from their claim to their terminal phase.
//
// A Restore is taken when queue-scheduler has validated it and the ledger lists it, or when the runner that held it is
// gone. One write takes it: claim, phase InProgress, startTimestamp. From then on the claim alone decides: the job ends
// without another write as soon as it is lost. Whoever takes the restore next goes on from the records in the bucket.
package job
