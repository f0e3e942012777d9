// Package seed fills a cluster with objects: Apply makes the sample estate (several hundred objects
// of many kinds in four namespaces, the same on every run), Bulk makes any number of plain objects
// for benches.
//
// Every object of the estate carries the label app.kubernetes.io/part-of=holdfast-sample, so it can
// be found and removed in a shared cluster.
package seed
