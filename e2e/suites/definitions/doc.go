// Package definitions tests the velero.io API on a real API server: that the definitions install,
// keep every field and can be completed from older ones.
package definitions
