package testbed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// ports: 0 etcd clients, 1 etcd peers, 2 API server, 3 controller manager.
func etcdArgs(c *Cluster, ports []int) []string {
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	return []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + c.etcdURL, "--advertise-client-urls=" + c.etcdURL,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--unsafe-no-fsync",                // the data dies with the test
		"--quota-backend-bytes=8589934592", // benches write gigabytes
		"--log-level=warn",
	}
}

func apiServerArgs(c *Cluster, ports []int) []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL,
		"--advertise-address=" + c.address, "--secure-port=" + strconv.Itoa(ports[2]),
		"--tls-cert-file=" + filepath.Join(c.dir, "server.crt"), "--tls-private-key-file=" + filepath.Join(c.dir, "server.key"),
		"--client-ca-file=" + filepath.Join(c.dir, "ca.crt"),
		"--allow-privileged=true", "--anonymous-auth=false",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(c.dir, "accounts.key"),
		"--service-account-signing-key-file=" + filepath.Join(c.dir, "accounts.key"),
		"--cert-dir=" + filepath.Join(c.dir, "run"), "--profiling=false",
	}
	if c.open {
		return append(args, nodeArgs(c)...)
	}
	// A loopback address is not a legal endpoint.
	return append(args, "--bind-address="+loopback, "--endpoint-reconciler-type=none", "--authorization-mode=RBAC")
}

// nodeArgs are the flags of an API server that has nodes: kubelets get the rights of their Node, and
// the server is known to them by a certificate.
func nodeArgs(c *Cluster) []string {
	return []string{
		"--bind-address=0.0.0.0", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + filepath.Join(c.dir, "kubelet-client.crt"),
		"--kubelet-client-key=" + filepath.Join(c.dir, "kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

func controllerArgs(c *Cluster, ports []int) []string {
	kubeconfig := filepath.Join(c.dir, "kubeconfig-controllers")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[3]),
		"--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + filepath.Join(c.dir, "accounts.key"),
		"--root-ca-file=" + filepath.Join(c.dir, "ca.crt"),
		"--kube-api-qps=1000", "--kube-api-burst=2000", // namespaces full of test objects go away in seconds
		"--pvclaimbinder-sync-period=2s", // claims that wait are bound in seconds
		"--cert-dir=" + filepath.Join(c.dir, "run"), "--profiling=false",
	}
}

func (c *Cluster) writeKubeconfigs() error {
	admin, err := c.authority.clientCertificate("holdfast-testbed", "system:masters")
	if err != nil {
		return err
	}
	controllers, err := c.authority.clientCertificate("system:kube-controller-manager")
	if err != nil {
		return err
	}
	for name, client := range map[string]certPair{"kubeconfig": admin, "kubeconfig-controllers": controllers} {
		if err := clientcmd.WriteToFile(newKubeconfig(c.url, c.authority.pem, client), filepath.Join(c.dir, name)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	c.config = &rest.Config{
		Host: c.url, QPS: -1, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem, CertData: admin.cert, KeyData: admin.key},
	}
	return nil
}

func newKubeconfig(url string, ca []byte, client certPair) api.Config {
	config := api.NewConfig()
	config.Clusters["testbed"] = &api.Cluster{Server: url, CertificateAuthorityData: ca}
	config.AuthInfos["testbed"] = &api.AuthInfo{ClientCertificateData: client.cert, ClientKeyData: client.key}
	config.Contexts["testbed"] = &api.Context{Cluster: "testbed", AuthInfo: "testbed"}
	config.CurrentContext = "testbed"
	return *config
}

func (c *Cluster) etcdReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.etcdURL+"/health", http.NoBody)
	if err != nil {
		return err
	}
	return checkAnswer(probeClient, request)
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	return checkAnswer(client, request)
}

// controllersReady checks what the controllers make first: the service account and the
// authority's ConfigMap of a namespace.
func (c *Cluster) controllersReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return err
}

// probeClient checks the readiness of servers on loopback; it keeps no connection.
var probeClient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func checkAnswer(client *http.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 2048))
	return fmt.Errorf("%s answers %s: %s", request.URL.Path, response.Status, body)
}
