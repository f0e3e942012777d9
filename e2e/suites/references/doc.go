// Package references is a scenario about restores of custom resources whose definitions are published: those
// of Cluster API with its provider for Docker, of cert-manager and of CloudNativePG. Their objects own and name
// each other, and none comes before what it names.
package references
