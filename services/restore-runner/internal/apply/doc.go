// Package apply makes an object of the backup one that can be created again, and brings it into the
// cluster.
//
// NormalizeObject removes what only the old cluster knew (identity, status, assigned addresses and nodes,
// bindings) and PlaceObject adds the labels of the restore, by the rules of Velero 1.18's restore and of its
// built-in restore actions, applied to the decoded JSON in place. Values of unexpected types are left
// alone, never a reason to panic: the API server judges them.
//
// A Client creates first and reads only what was refused, compares what is there with what was stored,
// and follows the existing-resource policy (Velero 1.18's rules). Requests go out without a
// client-side rate limit. Latencies and throttling are reported to an Observer, and requests that fail
// for a transient reason are retried with growing pauses.
package apply
