// Package velerohost loads plugins built with Holdfast's SDK as a Velero server does, with Velero's
// own code and nothing of Holdfast's. Its test is part of `make test-all`: it builds much of
// Velero.
package velerohost
