// Package service is the skeleton every Holdfast service stands on.
//
// A service's main calls [Main], which reads flags and HOLDFAST_* variables, sets up logs, traces
// and signals, and builds the service's app. The app calls [New] for a [Runtime]: a Kubernetes
// manager, a NATS connection, a gRPC server with health and reflection, and an HTTP server with
// /metrics, /healthz and /readyz. It registers what it serves, adds its parts with [Runtime.Go] and
// ends in [Runtime.Run].
//
// Nothing here is global: several Runtimes live in one process, each with its own metrics registry
// and listeners.
package service
