package surface

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSurface shares one cluster and one backup among all tools.
func TestSurface(t *testing.T) {
	b := newBed(t)
	t.Run("reflection and health", b.testContract)
	t.Run("refusals", b.testRefusals)
	t.Run("a backup by RPC", b.backupByRPC)
	t.Run("a restore by RPC", b.restoreByRPC)
	t.Run("backups by kubectl", b.backupsByKubectl)
	t.Run("traces", b.testTraces)
	t.Run("the queue by RPC", b.queueByRPC)
}
