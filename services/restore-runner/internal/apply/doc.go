// Package apply brings one object into the cluster: it creates first and reads only on a conflict,
// compares what is there with what was stored, and follows the existing-resource policy (Velero
// 1.18's rules).
//
// Requests go out without a client-side rate limit. Latencies and throttling are reported to an
// Observer, and requests that fail for a transient reason are retried with growing pauses.
package apply
