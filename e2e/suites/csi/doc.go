// Package csi backs up claims on a CSI driver, with the published controllers of CSI snapshots on a
// real API server, and deletes the backups again. The volumes of the driver are directories, so that
// it can be seen what a snapshot has. A claim whose snapshot the driver has lost is restored here;
// package csirestore has the other restores.
package csi
