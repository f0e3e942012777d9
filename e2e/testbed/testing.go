package testbed

import (
	"path/filepath"
	"testing"
)

// StartT starts a control plane for a test and stops it when the test and its subtests are done. The test fails when a binary is missing or the
// control plane does not get ready. Starting takes seconds: share one cluster among subtests.
func StartT(t testing.TB, options ...func(*Config)) *Cluster {
	t.Helper()
	config := Config{Dir: filepath.Join(t.TempDir(), "cluster")}
	for _, option := range options {
		option(&config)
	}
	cluster, err := Start(t.Context(), config)
	if err != nil {
		t.Fatalf("start the control plane: %v", err)
	}
	t.Cleanup(cluster.Stop)
	return cluster
}

// StartS3T starts an S3 server for a test and stops it when the test is done. The test fails when it cannot be started.
func StartS3T(t testing.TB) *S3 {
	t.Helper()
	server, err := StartS3(t.Context(), t.TempDir())
	if err != nil {
		t.Fatalf("start the S3 server: %v", err)
	}
	t.Cleanup(server.Stop)
	return server
}
