// Package selection decides what belongs to a backup or a restore: it validates the include and
// exclude lists of a spec, expands namespace patterns, and answers for every resource and every
// object whether the filters select it.
//
// The rules are Velero 1.18's, both filter styles: the older lists (includedResources,
// excludedResources, includeClusterResources) and the newer ones split by scope. A Filter is built
// once from a validated Spec and is safe for concurrent use; deciding on an item allocates nothing.
package selection
