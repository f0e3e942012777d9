// Package csirestore restores claims from CSI snapshots on a real API server, whose snapshot
// controller, provisioner and driver are those of package csitest. Package csi restores with the
// published controllers what a driver has lost.
package csirestore
