package testbed

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
)

// StartNATST starts a real NATS server with JetStream on a free port for a test and stops it when
// the test is done. It returns the server's URL.
func StartNATST(tb testing.TB) string {
	tb.Helper()
	server, err := embednats.Start(embednats.Config{Dir: tb.TempDir()})
	if err != nil {
		tb.Fatalf("start the NATS server: %v", err)
	}
	tb.Cleanup(server.Stop)
	return server.URL()
}
