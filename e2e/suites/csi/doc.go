// Package csi backs up claims on a CSI driver, whose snapshot controller and driver are those of
// package csitest, on a real API server, and deletes the backups again.
package csi
