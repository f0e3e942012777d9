// Package alerts tests the alerts of the helm chart with the query engine of Prometheus. It is a
// module of its own because of what that engine depends on.
package alerts
