// Package scenario holds tests that drive the built binaries (bin/, see `make build`) against a
// real API server, a real NATS server and real object stores, as a user would.
package scenario
