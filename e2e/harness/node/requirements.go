package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ErrRequirement means that this machine cannot run a node.
var ErrRequirement = errors.New("a node cannot run here")

// requirements are commands and files, by the Debian package that has them.
var requirements = []struct{ path, debian string }{
	{"ip", "iproute2"}, {"mount", "mount"}, {"iptables-restore", "iptables"}, {cniPlugins + "/bridge", "containernetworking-plugins"},
	{busybox, "busybox-static"},
}

// binaries are those of this repository's tools.
var binaries = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "containerd", "containerd-shim-runc-v2", "runc", "ctr", "kube-proxy",
	"kubelet", "versitygw",
}

const (
	cniPlugins = "/usr/lib/cni"
	busybox    = "/bin/busybox"
)

// Requirements returns an error that names what this machine lacks.
func Requirements() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it takes root, for namespaces and mounts", ErrRequirement)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return fmt.Errorf("%w: this machine has cgroups of version 2 alone, for which nothing is made yet", ErrRequirement)
	}
	var missing []string
	for _, r := range requirements {
		if _, err := exec.LookPath(r.path); err != nil {
			missing = append(missing, r.debian)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: apt-get install --no-install-recommends %s", ErrRequirement, strings.Join(missing, " "))
	}
	return nil
}
