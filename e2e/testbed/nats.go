package testbed

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/embednats"
)

// StartNATST starts a real NATS server with JetStream on a free port for a test and stops it when the test is done. It returns the server's URL.
func StartNATST(t testing.TB) string {
	t.Helper()
	server, err := embednats.Start(embednats.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("start the NATS server: %v", err)
	}
	t.Cleanup(server.Stop)
	return server.URL()
}
