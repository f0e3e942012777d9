// Package csi backs up claims on a CSI driver, whose snapshot controller, provisioner and driver are
// those of package csitest, on a real API server, restores them, and deletes the backups again.
package csi
