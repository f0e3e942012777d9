// Package outcome keeps what becomes of each object of a restore: counts, the messages of the results file, the log, the
// resource list, and immutable records in the bucket while the restore runs.
//
// Formats are those of Velero 1.18's restore files; the records are Holdfast's own.
package outcome
