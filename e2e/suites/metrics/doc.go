// Package metrics tests what the services report about themselves, and the alerts and the dashboard
// that are made of it.
package metrics
