// Package veleroplugin runs a plugin of every kind and version, compiled with Velero's own
// published framework, in Holdfast's plugin host. Building the framework takes minutes, so its
// tests need the build tag velero; `make test-all` sets it.
package veleroplugin
