// Package resource discovers which kinds of objects a cluster serves, in the order in which a
// backup collects them, and resolves the names people use for them.
//
// Order, preference and cohabiting kinds follow Velero 1.18. An API group that does not answer is
// reported beside the result, never a reason to give up the other groups.
package resource
