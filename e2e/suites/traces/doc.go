// Package traces has the test of traces with Jaeger: what its query API shows of a backup that
// another runner takes over, of a restore and of a deletion. `make test-traces` runs it.
package traces
