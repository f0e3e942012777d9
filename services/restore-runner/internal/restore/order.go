//go:build !mutant_earlyack

package restore

// outcomesFirst would make an object's outcome durable before the object is in the cluster.
const outcomesFirst = false
