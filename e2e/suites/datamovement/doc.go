// Package datamovement moves the data of CSI volumes to a bucket and back: a real API server and S3 server, the published controllers
// of CSI, the services and the movers as processes, and a driver whose volumes are directories.
package datamovement
