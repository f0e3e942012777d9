// Package volumes gives claims and PersistentVolumes their data: from CSI snapshots, moved or not, from native
// snapshots and from file-system backups.
//
// Decisions say what becomes of the PersistentVolumes of a backup: brought back as they were or with a
// volume made of a snapshot, or left out so that their claims get new ones. The rules are Velero
// 1.18's, from the backup's volume information and the volumes' own reclaim policy.
package volumes
