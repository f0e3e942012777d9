// Package node runs a cluster of one node on this machine: a control plane, containerd, kubelet,
// kube-proxy, CoreDNS, a provisioner of volumes, a CSI driver, and an S3 server with a bucket.
//
// All of it is in mount, process, network, host name and IPC namespaces of its own, which the machine
// reaches over a pair of virtual Ethernet devices. What kubelet, containerd and kube-proxy mount and
// set (volumes, overlays, bridges, packet filters, sysctls of the network) is theirs alone and goes
// with the first process of the cluster; nothing reaches the network of the machine. The cgroups of
// containers are below one named like the device. Loop devices of block volumes are the machine's, and
// Down frees them.
//
// It takes root, Linux, and the Debian packages that Requirements names.
package node
