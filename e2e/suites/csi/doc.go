// Package csi backs up claims on a CSI driver, with the published controllers of CSI snapshots on a
// real API server, restores them, and deletes the backups again. The volumes of the driver are
// directories, so that it can be seen what a snapshot has and what comes back of it.
package csi
