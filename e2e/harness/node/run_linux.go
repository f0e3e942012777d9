package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/ociimage"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Run starts everything in the namespaces, which Init has prepared, and keeps it running until ctx
// ends. It returns an error when a process ends before.
func Run(ctx context.Context, dir string, link int) error {
	tool, err := testbed.Binary("containerd")
	if err != nil {
		return err
	}
	p := newPlace(dir, link, filepath.Dir(tool))
	if err := os.Setenv("PATH", p.tools+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	if err := p.setUpNetwork(ctx); err != nil {
		return err
	}
	cluster, err := testbed.Start(ctx, testbed.Config{Dir: dir, Address: p.address, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := p.writeKubeconfigs(cluster); err != nil {
		return err
	}
	if err := p.writeConfigs(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	if err != nil {
		return err
	}
	driver, err := directorydriver.Start(directorydriver.Config{
		Name: directorydriver.Name, Dir: DriverDir(dir), Socket: directorydriver.SocketIn(DriverDir(dir)), Clock: clock.RealClock{}, Kubelet: kubeletRoot,
	})
	if err != nil {
		return err
	}
	defer driver.Close()
	ended := make(chan error, 1)
	stops, err := p.startProcesses(ctx, client, ended)
	defer func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}()
	if err != nil {
		return err
	}
	store, err := testbed.StartS3At(ctx, dir, p.address)
	if err != nil {
		return err
	}
	defer store.Stop()
	if err := store.CreateBucket(ctx, Bucket); err != nil {
		return err
	}
	fmt.Println("the store is ready: " + store.Endpoint)
	volumes := &volumeProvisioner{client: client, root: volumesRoot}
	if err := volumes.createClass(ctx); err != nil {
		return err
	}
	ready := Store{Endpoint: store.Endpoint, Region: store.Region, AccessKey: store.AccessKey, SecretKey: store.SecretKey}
	if err := writeJSON(p.filePath(readyFile), ready); err != nil {
		return err
	}
	go volumes.runProvisioner(ctx)
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// setUpNetwork waits for the device and sets its address. The machine is the way to everywhere else.
func (p *nodePlace) setUpNetwork(ctx context.Context) error {
	for !fileExists("/proc/sys/net/ipv4/conf/" + p.link) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
	for _, args := range []string{
		"link set lo up", "addr add " + p.address + "/30 dev " + p.link, "link set " + p.link + " up", "route add default via " + p.gateway,
	} {
		if err := runIP(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// writeKubeconfigs writes the kubeconfig of each process, with the user that the API server's own roles are
// bound to.
func (p *nodePlace) writeKubeconfigs(cluster *testbed.Cluster) error {
	for user, group := range map[string]string{
		"system:node:" + Name: "system:nodes", "system:kube-scheduler": "", "system:kube-proxy": "", "dns": "system:masters",
	} {
		var groups []string
		if group != "" {
			groups = append(groups, group)
		}
		if _, err := cluster.KubeconfigFor(user, groups...); err != nil {
			return err
		}
	}
	return nil
}

// startProcesses starts the processes of the node and returns when it is ready, with what stops them. An early end of one
// comes out of ended; the kubelet is started again.
func (p *nodePlace) startProcesses(ctx context.Context, client kubernetes.Interface, ended chan<- error) (stops []func(), err error) {
	scheduler := p.filePath("kubeconfig-system:kube-scheduler")
	for _, s := range []struct {
		name  string
		args  []string
		ready func(context.Context) error
	}{
		{"kube-scheduler", []string{
			"--kubeconfig=" + scheduler, "--authentication-kubeconfig=" + scheduler, "--authorization-kubeconfig=" + scheduler,
			"--leader-elect=false", "--bind-address=127.0.0.1",
		}, nil},
		{"coredns", []string{"-conf", p.filePath("Corefile")}, nil},
		{"containerd", []string{"--config", p.filePath("containerd.toml")}, p.importTestImage},
		{"kube-proxy", []string{"--config=" + p.filePath("kube-proxy.yaml")}, nil},
		{kubelet, []string{
			"--config=" + p.filePath("kubelet.yaml"), "--kubeconfig=" + p.filePath("kubeconfig-system:node:"+Name), "--hostname-override=" + Name,
			"--node-ip=" + p.address, "--root-dir=" + kubeletRoot,
		}, func(ctx context.Context) error { return nodeReady(ctx, client) }},
	} {
		path, err := testbed.Binary(s.name)
		if err != nil {
			return stops, err
		}
		began := time.Now()
		spec := testbed.ProcessSpec{Name: s.name, Path: path, Args: s.args, LogDir: p.dir}
		process, err := testbed.StartProcess(spec)
		if err != nil {
			return stops, err
		}
		if s.name == kubelet {
			stops = append(stops, restartProcess(spec, process, ended))
		} else {
			stops = append(stops, func() { process.Stop(stopGrace / 4) })
			go func() {
				<-process.Done()
				reportEnd(process.EarlyEnd(), ended)
			}()
		}
		if s.ready == nil {
			continue
		}
		if err := awaitProcess(ctx, process, s.ready); err != nil {
			return stops, fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%s is ready after %.1f s\n", s.name, time.Since(began).Seconds())
	}
	return stops, nil
}

// awaitProcess calls ready until it succeeds, the process ends, or ctx ends.
func awaitProcess(ctx context.Context, process *testbed.Process, ready func(context.Context) error) error {
	for ticker := time.NewTicker(look); ; {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return process.EarlyEnd()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// importTestImage gives containerd the image that sandboxes and test pods run.
func (p *nodePlace) importTestImage(ctx context.Context) error {
	if !fileExists(socket) {
		return errors.New("there is no " + socket)
	}
	archive := p.filePath("busybox.tar")
	if err := ociimage.Busybox(archive, "/bin/busybox", TestImage); err != nil {
		return err
	}
	return importImages(ctx, socket, archive)
}

var errNotReady = errors.New("the node is not ready")

func nodeReady(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errNotReady
}
