package doctor_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	patience = testbed.Patience
	look     = 50 * time.Millisecond
	services = 7
)

// doctorPlace is one control plane, which the parts share; each has a namespace of its own.
type doctorPlace struct {
	cluster *testbed.Cluster
	client  client.Client
	binary  string
}

// doctorFinding is what -o json prints.
type doctorFinding struct{ Check, Subject, Status, Message, Remedy string }

func TestDoctor(t *testing.T) {
	p := &doctorPlace{cluster: testbed.StartT(t)}
	var err error
	p.client, err = client.New(p.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	p.binary, err = testbed.Product("holdfast")
	require.NoError(t, err)
	t.Run("an empty cluster", p.testEmpty)
	t.Run("a whole server", p.testWhole)
	t.Run("a bundle has no secrets", p.testSecrets)
}

func (p *doctorPlace) newCLI(namespace string) *product.CLI {
	return &product.CLI{Binary: p.binary, Kubeconfig: p.cluster.Kubeconfig(), Namespace: namespace}
}

// runDoctor runs checks and returns what they found; the exit code is 1 exactly if one failed.
func (p *doctorPlace) runDoctor(t *testing.T, namespace, checks string, more ...string) []doctorFinding {
	t.Helper()
	out, err := p.newCLI(namespace).Run(t.Context(), append([]string{"doctor", "-o", "json", "--checks", checks}, more...)...)
	var exit *product.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.Code)
	}
	var report struct{ Findings []doctorFinding }
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s %v", out, err)
	require.NotEmpty(t, report.Findings)
	require.Equal(t, err != nil, len(findingsWith("failed", report.Findings)) > 0, out)
	require.True(t, err == nil || errors.As(err, &exit))
	return report.Findings
}

func findingsWith(status string, all []doctorFinding) []doctorFinding {
	return slices.DeleteFunc(slices.Clone(all), func(f doctorFinding) bool { return f.Status != status })
}

// requireFinding requires that one finding of the status has the words.
func requireFinding(t *testing.T, all []doctorFinding, status string, words ...string) {
	t.Helper()
	some := findingsWith(status, all)
	require.Len(t, some, 1, "%+v", all)
	for _, word := range words {
		require.Contains(t, some[0].Subject+": "+some[0].Message, word)
	}
	require.NotEmpty(t, some[0].Remedy)
}

func (p *doctorPlace) createNamespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, p.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// testEmpty is what there is before anything is installed.
func (p *doctorPlace) testEmpty(t *testing.T) {
	found := p.runDoctor(t, "velero", "kubernetes,definitions,velero,locations")
	require.NotEmpty(t, findingsWith("ok", found))
	failed := findingsWith("failed", found)
	require.Len(t, failed, 14, "thirteen definitions, and locations without theirs: %+v", failed)
	require.Contains(t, failed[0].Remedy, "holdfast crd install")
}

func (p *doctorPlace) testWhole(t *testing.T) {
	cli := p.newCLI("whole")
	server, err := cli.Up(t.Context(), t.TempDir(), "--free-ports")
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	addresses := addressesOf(t, server)
	found := p.runDoctor(t, "whole", "kubernetes,definitions,velero,rights,services,locations,plugins,nats", append(addresses, "--plugin-dir", t.TempDir())...)
	require.Empty(t, findingsWith("failed", found))
	require.Empty(t, findingsWith("warning", found))
	requireFinding(t, found, "skipped", "no address of NATS")
	for _, check := range []string{"kubernetes", "definitions", "velero", "rights", "services", "locations", "plugins"} {
		require.True(t, slices.ContainsFunc(found, func(f doctorFinding) bool { return f.Check == check && f.Status == "ok" }), check)
	}
	files, err := product.Files(server.Bucket())
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, "doctor") }), "what was written is gone: %v", files)
	bundle := p.runDebug(t, "whole", addresses...)
	require.Contains(t, bundle["queue.json"], `"entries": []`)
	require.Contains(t, bundle["metrics/deletion.txt"], "holdfast_build_info{")
	require.Contains(t, bundle["objects/leases.yaml"], "kind: Lease")
	require.Empty(t, bundle["problems.txt"])
	server.Shutdown()
	require.Len(t, findingsWith("failed", p.runDoctor(t, "whole", "services", addresses...)), services)
}

// addressesOf returns flags with the addresses of a server that listens on free ports. Each service
// logs its addresses after it counts as ready.
func addressesOf(t *testing.T, server *product.Server) []string {
	t.Helper()
	serving := regexp.MustCompile(`service=(\S+) .*ready=true grpc=(\S+) http=(\S+)`)
	grpc, http := map[string]string{}, map[string]string{}
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(server.LogPath())
		require.NoError(t, err)
		for _, found := range serving.FindAllStringSubmatch(string(log), -1) {
			grpc[found[1]], http[found[1]] = found[2], found[3]
		}
		return len(grpc) == services
	}, patience, look)
	return append(addressFlags("--services-address", grpc), addressFlags("--metrics-address", http)...)
}

// addressFlags repeats a flag for each service.
func addressFlags(flag string, addresses map[string]string) []string {
	var out []string
	for name, address := range addresses {
		out = append(out, flag, name+"="+address)
	}
	return out
}

// unreachableFlags returns flags with an address that nothing listens on, whatever else runs on this machine.
func unreachableFlags() []string {
	closed := map[string]string{}
	for _, name := range fleet.Services {
		closed[name] = "127.0.0.1:1"
	}
	return append(addressFlags("--services-address", closed), addressFlags("--metrics-address", closed)...)
}
