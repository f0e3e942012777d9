// Package job carries out Restores, as a kind of job of package engine.
//
// A Restore is admitted when queue-scheduler has validated it and the ledger lists it, or when the
// runner that held it is gone. One write claims it: claim, phase InProgress, startTimestamp. From
// then on the claim alone decides. The parts of an attempt hand values on: session (claim and
// settings), inputs (backup, store, records), planned (what is to be restored), and ending (the
// last record, which decides the phase, and the files). The next holder resumes from the records in
// the bucket.
package job
