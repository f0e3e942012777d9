package node

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	containerdRoot = "/var/lib/containerd"
	kubeletRoot    = "/var/lib/kubelet"
	volumesRoot    = "/var/lib/volumes"
	socket         = "/run/containerd/containerd.sock"
	cniPlugins     = "/usr/lib/cni"
)

// nodePlace is where the processes of a node are and what they use.
type nodePlace struct {
	dir     string // of the cluster: state, logs and configuration
	link    string // network device to the machine
	address string // of the node
	gateway string // of the machine, at the other end
	pods    string // network of Pods
	tools   string // directory of the binaries
}

func newPlace(dir string, link int, tools string) *nodePlace {
	return &nodePlace{
		dir: dir, link: fmt.Sprintf("%s%dn", linkPrefix, link), tools: tools,
		address: fmt.Sprintf("198.18.%d.2", link), gateway: fmt.Sprintf("198.18.%d.1", link), pods: fmt.Sprintf("10.244.%d.0/24", link),
	}
}

// The prefix of the names of network devices. Addresses of nodes are of the range that RFC 2544 sets
// apart for tests, four for each cluster.
const linkPrefix = "hf"

// cgroupOf names the cgroup that is the root of all others in the namespaces of a cluster, in each
// hierarchy.
func cgroupOf(link int) string { return fmt.Sprintf("holdfast-%s%d", linkPrefix, link) }

func (p *nodePlace) filePath(name string) string { return filepath.Join(p.dir, name) }

// writeConfigs writes the configuration of all processes.
func (p *nodePlace) writeConfigs() error {
	if err := os.MkdirAll(p.filePath("cni"), 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"containerd.toml": p.containerdConfig(), "kubelet.yaml": p.kubeletConfig(), "kube-proxy.yaml": p.kubeProxy(), "Corefile": p.coreDNS(),
		"cni/pods.conflist": p.cniConfig(), "resolv.conf": "",
	} {
		if err := os.WriteFile(p.filePath(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	return nil
}

// containerdConfig returns a configuration of version 3. Where a process may not lower its oom_score_adj,
// no sandbox starts without restrict_oom_score_adj.
func (p *nodePlace) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"
[grpc]
address = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%q]
conf_dir = %q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %q
SystemdCgroup = false
`, containerdRoot, socket, TestImage, cniPlugins, p.filePath("cni"), filepath.Join(p.tools, "runc"))
}

// kubeletConfig returns a configuration that leaves cgroups to containerd.
func (p *nodePlace) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://%[3]s
clusterDomain: cluster.local
clusterDNS: [%[1]s]
resolvConf: %[4]s
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
volumePluginDir: %[5]s/plugins-exec
nodeStatusReportFrequency: 10s
`, p.address, p.filePath("ca.crt"), socket, p.filePath("resolv.conf"), kubeletRoot)
}

// kubeProxy returns a configuration that leaves the size of the connection tracking table, which is
// the machine's, as it is.
func (p *nodePlace) kubeProxy() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: %s}
hostnameOverride: %s
clusterCIDR: %s
conntrack: {maxPerCore: 0}
`, p.filePath("kubeconfig-system:kube-proxy"), Name, p.pods)
}

func (p *nodePlace) coreDNS() string {
	return fmt.Sprintf(`. {
  bind %s
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig %s
  }
  cache 5
}
`, p.address, p.filePath("kubeconfig-dns"))
}

func (p *nodePlace) cniConfig() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`, p.pods)
}
