package surface

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
)

const (
	patience = testbed.Patience
	look     = 100 * time.Millisecond
)

// bed is a cluster, the six services as processes of their own, a location in a directory, and a
// collector the services send their spans to.
type bed struct {
	cluster   *testbed.Cluster
	fleet     *fleet.Fleet
	collector *spanCollector
}

// estate is what gets backed up: the claim's data cannot be taken, which is worth a warning.
const estate = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: shop, labels: {app: shop}}
data: {tea: "3"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ledger, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
`

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{cluster: testbed.StartT(t), collector: startCollector(t)}
	require.NoError(t, crds.Install(t.Context(), b.cluster.RestConfig()))
	objects := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(objects, "bucket"), 0o700))
	b.runKubectl(t, `
apiVersion: v1
kind: Namespace
metadata: {name: velero}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: default, namespace: velero}
spec: {provider: holdfast.io/file, default: true, config: {path: `+objects+`}, objectStorage: {bucket: bucket}}
---`+estate, "create", "-f", "-")
	var err error
	b.fleet, err = fleet.Start(t.Context(), fleet.Config{
		Dir: t.TempDir(), Kubeconfig: b.cluster.Kubeconfig(), Rest: b.cluster.RestConfig(),
		Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + b.collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY=200"},
	})
	require.NoError(t, err)
	t.Cleanup(b.fleet.Stop)
	t.Cleanup(func() {
		for _, m := range b.fleet.Members {
			if t.Failed() {
				t.Logf("%s complains:\n%s", filepath.Base(m.LogPath()), testbed.Complaints(m.LogPath(), 8))
			}
		}
	})
	b.awaitPhase(t, "backupstoragelocations", "default", "Available")
	return b
}

// runTool runs a tool of the test bed and returns its two streams and its exit code.
func runTool(t *testing.T, input, tool string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path, err := testbed.Binary(tool)
	require.NoError(t, err)
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		code = exit.ExitCode()
	}
	return out.String(), errs.String(), code
}

// runKubectl requires success.
func (b *bed) runKubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, errs, code := runTool(t, input, "kubectl", append([]string{"--kubeconfig", b.cluster.Kubeconfig()}, args...)...)
	require.Zero(t, code, "kubectl %v: %s", args, errs)
	return out
}

// awaitPhase waits for a phase of a custom resource.
func (b *bed) awaitPhase(t *testing.T, resource, name, phase string) {
	t.Helper()
	last := ""
	require.Eventually(t, func() bool {
		last = b.runKubectl(t, "", "get", resource+".velero.io", "-n", "velero", name, "-o", "jsonpath={.status.phase}")
		return last == phase
	}, patience, look, "%s %s gets %s", resource, name, phase)
}

// serviceAddress returns where the one replica of a service answers RPCs.
func (b *bed) serviceAddress(service string) string { return b.fleet.Of(service)[0].GRPC }
