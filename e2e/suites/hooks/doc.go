// Package hooks runs backups and restores with hooks against a real API server, which proxies what is
// to be run to a node that only runs commands.
package hooks
