// Package apply brings one object into the cluster: it creates first and reads only on a conflict,
// compares what is there with what was stored, and follows the existing-resource policy (Velero
// 1.18's rules).
//
// Requests go out without a client-side rate limit. What the server says about its load is told to
// an Observer, and answers that only mean "not now" are tried again with growing pauses.
package apply
