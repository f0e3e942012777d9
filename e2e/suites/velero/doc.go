// Package velero runs Velero's published server on the buckets of Holdfast, and Holdfast on those
// of Velero's server: a backup of one is restored by the other. Building Velero takes minutes, so
// its tests need the build tag velero; `make test-all` sets it.
package velero
