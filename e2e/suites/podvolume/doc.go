// Package podvolume backs up and restores the files of Pods' volumes: a real API server and S3 server, the
// services and the movers as processes, and directories of this machine in place of a node's.
package podvolume
