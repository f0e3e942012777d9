// Package fault kills and pauses Holdfast's processes at the named steps of package failpoint and
// compares what becomes of the job with an undisturbed run: the content of the bucket, the objects
// in the cluster, counts and results. It needs the binaries of `make build-fault`.
package fault
