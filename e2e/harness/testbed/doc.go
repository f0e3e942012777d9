// Package testbed starts the real parts that scenarios run against: an etcd, a kube-apiserver and a
// kube-controller-manager (a control plane without nodes: objects, RBAC, garbage collection,
// namespace deletion and service accounts are real, pods stay Pending), an S3 server, and a NATS
// server.
//
// Everything listens on free ports of 127.0.0.1, logs into files below the given directory, is
// stopped by process id, and ends with the process that started it. A missing binary is an error
// that names it and how to build it; nothing is skipped.
package testbed
