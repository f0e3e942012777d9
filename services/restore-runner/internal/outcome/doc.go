// Package outcome keeps what becomes of each object of a restore: counts, the messages of the
// results file, the log, the resource list, and immutable records in the bucket from which another
// process resumes.
//
// Every change goes through one path, a Record: what was recorded is applied by a successor exactly
// as it was when it happened, so that files and counts come out the same. A Record is one line;
// what must not be torn apart (an outcome and the messages about it) is in one Record. Lines are
// stored in the order in which they were applied, and any beginning of them is a consistent state.
//
// Formats are those of Velero 1.18's restore files; the records are Holdfast's own.
package outcome
