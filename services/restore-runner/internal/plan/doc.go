// Package plan decides what a restore brings back and in which order: the items of a backup that
// the filters select, their target namespaces, and a graph of what has to wait for what.
//
// A plan is built from the listing of a backup alone, as a stream; it holds some hundred bytes for
// each object and no bodies. Nodes are numbered in Velero's priority order, so that of two nodes
// that are ready the lower number goes first.
package plan
