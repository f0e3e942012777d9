package testbed

import (
	"path/filepath"
	"testing"
)

// LessCollecting is for the environment of what tests start, which share few processors: memory is cheaper than
// garbage collections of API servers and services. Benchmarks measure with the usual setting.
const LessCollecting = "GOGC=400"

// StartT starts a control plane for a test and stops it when the test and its subtests are done.
// The test fails when a binary is missing or the control plane does not get ready. Starting takes
// seconds: share one cluster among subtests.
func StartT(tb testing.TB, options ...func(*Config)) *Cluster {
	tb.Helper()
	config := Config{Dir: filepath.Join(tb.TempDir(), "cluster"), Env: []string{LessCollecting}}
	for _, option := range options {
		option(&config)
	}
	cluster, err := Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("start the control plane: %v", err)
	}
	tb.Cleanup(cluster.Stop)
	return cluster
}

// StartS3T starts an S3 server for a test and stops it when the test is done. The test fails when
// it cannot be started.
func StartS3T(tb testing.TB) *S3 {
	tb.Helper()
	server, err := StartS3(tb.Context(), tb.TempDir())
	if err != nil {
		tb.Fatalf("start the S3 server: %v", err)
	}
	tb.Cleanup(server.Stop)
	return server
}
