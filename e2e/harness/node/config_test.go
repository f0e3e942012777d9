package node

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// TestConfigurationsAreOfOneCluster parses what the processes are given and compares what they must
// agree on, for two clusters on one machine.
func TestConfigurationsAreOfOneCluster(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	for _, link := range []int{0, 63} {
		dir := t.TempDir()
		p := newPlace(dir, link, "/tools")
		require.NoError(t, p.writeConfigs())

		var kubelet struct {
			Address                  string
			ClusterDNS               []string
			ContainerRuntimeEndpoint string
		}
		parseFile(t, filepath.Join(dir, "kubelet.yaml"), &kubelet)
		require.Equal(t, p.address, kubelet.Address)
		require.Equal(t, []string{p.address}, kubelet.ClusterDNS)
		require.Contains(t, readFile(t, dir, "Corefile"), "bind "+kubelet.ClusterDNS[0]+"\n")
		require.Equal(t, "unix://"+socket, kubelet.ContainerRuntimeEndpoint)
		require.Contains(t, readFile(t, dir, "containerd.toml"), `address = "`+socket+`"`)

		var proxy struct{ ClusterCIDR, HostnameOverride string }
		parseFile(t, filepath.Join(dir, "kube-proxy.yaml"), &proxy)
		require.Equal(t, Name, proxy.HostnameOverride)
		var cni struct {
			Plugins []struct {
				IPAM struct{ Ranges [][]struct{ Subnet string } }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(readFile(t, dir, "cni/pods.conflist")), &cni))
		require.Equal(t, proxy.ClusterCIDR, cni.Plugins[0].IPAM.Ranges[0][0].Subnet)

		pods, err := netip.ParsePrefix(proxy.ClusterCIDR)
		require.NoError(t, err)
		require.False(t, seen[pods], "each cluster has Pods in a network of its own")
		seen[pods] = true
		link := netip.MustParsePrefix(p.gateway + "/30")
		require.True(t, link.Contains(netip.MustParseAddr(p.address)))
		require.NotEqual(t, p.address, p.gateway)
	}
}

func parseFile(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, into), path)
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(data)
}

// A run of ten minutes that ends with a missing package would name one package.
func TestRequirementsAreNamedTogether(t *testing.T) {
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	check := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "e2e", "tools", "noderequirements.sh"))
	check.Env = []string{"PATH=" + t.TempDir()}
	out, err := check.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "apt-get install --no-install-recommends --yes iproute2 mount iptables ")
	require.Contains(t, string(out), " gcc pkg-config libseccomp-dev\n")
}
