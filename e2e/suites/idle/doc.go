// Package idle counts what the services ask of a real API server while there is nothing to do.
package idle
