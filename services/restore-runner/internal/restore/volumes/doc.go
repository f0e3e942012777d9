// Package volumes gives claims and PersistentVolumes their data: from CSI snapshots and from native
// snapshots.
package volumes
