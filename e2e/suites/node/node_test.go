//go:build node

package node

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const (
	patience  = testbed.Patience
	interval  = 100 * time.Millisecond
	namespace = "default"
)

// TestClusterWithANode runs Pods with a volume, a Service and names, and finds the machine afterwards
// as it was.
func TestClusterWithANode(t *testing.T) {
	before := machineState(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	held, err := node.Hold(program(t), t.Output(), "--dir", dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, held.Release()) })
	require.NoError(t, held.AwaitReady(t.Context()))
	cgroup := cgroupOf(t, dir)

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	runPods(t, client)
	volumesAreRemoved(t, client, filepath.Join(dir, "volumes"))
	store, err := node.ReadStore(dir)
	require.NoError(t, err)
	status, _, err := getURL(t.Context(), store.Endpoint+"/"+node.Bucket)
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, status, "the bucket is not open to everyone")

	running := strings.Join(slices.Collect(maps.Values(processesIn(t, cgroup))), "\n")
	require.Contains(t, running, "/kubelet ")
	require.Contains(t, running, "httpd -f -p 8080", "a process of a Pod")
	for _, kind := range []string{"devices", "routes", "cgroups"} {
		require.NotEqual(t, before[kind], machineState(t)[kind], "%s are seen while it runs", kind)
	}
	takeDown(t, dir)
	require.Equal(t, before, machineState(t))
	require.Eventually(t, func() bool { return len(processesIn(t, cgroup)) == 0 }, patience, interval, "the first process of the machine takes the exit code of the node's")
	require.NoDirExists(t, dir)
}

// TestATestThatEndsEarlyLeavesNoCluster ends the standard input of the program in the middle of a start, as the end of its test does.
func TestATestThatEndsEarlyLeavesNoCluster(t *testing.T) {
	before := machineState(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	held, err := node.Hold(program(t), t.Output(), "--dir", dir)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "node.json"))
		return err == nil && len(processesIn(t, cgroupOf(t, dir))) > 0
	}, patience, interval, "processes run")
	cgroup := cgroupOf(t, dir)
	require.NotEqual(t, before["devices"], machineState(t)["devices"])
	require.NoError(t, held.Release())
	require.Equal(t, before, machineState(t))
	require.Empty(t, processesIn(t, cgroup))
	require.NoDirExists(t, dir)
}

// program is what `make cluster-up` and `make cluster-down` run.
func program(t *testing.T) string {
	t.Helper()
	binary, err := testbed.Product("e2e/cluster")
	require.NoError(t, err)
	return binary
}

// takeDown ends a cluster as `make cluster-down` does.
func takeDown(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), "down", "--dir", dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run())
}

// cgroupOf returns the cgroup of a cluster.
func cgroupOf(t *testing.T, dir string) string {
	t.Helper()
	cgroup, err := node.Cgroup(dir)
	require.NoError(t, err)
	return cgroup
}

// runPods runs a Pod that serves a file of its volume, and one that reads the file in the volume, and
// over the name of a Service.
func runPods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	core := client.CoreV1()
	_, err := core.PersistentVolumeClaims(namespace).Create(t.Context(), newClaim(), metav1.CreateOptions{})
	require.NoError(t, err)
	service, err := core.Services(namespace).Create(t.Context(), newService(), metav1.CreateOptions{})
	require.NoError(t, err)
	server := newPod("web", "echo hello >/data/index.html; exec httpd -f -p 8080 -h /data", corev1.RestartPolicyAlways)
	_, err = core.Pods(namespace).Create(t.Context(), server, metav1.CreateOptions{})
	require.NoError(t, err)
	server = podBecomes(t, client, "web", corev1.PodRunning)
	awaitAnswer(t, "http://"+net.JoinHostPort(server.Status.PodIP, "8080"))
	awaitAnswer(t, "http://"+net.JoinHostPort(server.Status.HostIP, strconv.Itoa(int(service.Spec.Ports[0].NodePort))))

	reader := newPod("reader", "cat /data/index.html && wget -qO- http://web."+namespace+".svc.cluster.local && wget -qO- http://"+service.Spec.ClusterIP, corev1.RestartPolicyNever)
	_, err = core.Pods(namespace).Create(t.Context(), reader, metav1.CreateOptions{})
	require.NoError(t, err)
	podBecomes(t, client, "reader", corev1.PodSucceeded)
	log, err := core.Pods(namespace).GetLogs("reader", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("hello\n", 3), string(log))
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), "reader", metav1.DeleteOptions{}))
}

func newClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// newPod returns a Pod that runs a shell script with the volume at /data.
func newPod(name, script string, restarts corev1.RestartPolicy) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: restarts, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: name, Image: node.TestImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{
				Name:         "data",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			}},
		},
	}
}

func podBecomes(t *testing.T, client kubernetes.Interface, name string, phase corev1.PodPhase) (found *corev1.Pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		found, err = client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && found.Status.Phase == phase
	}, patience, interval, "Pod %s does not become %s", name, phase)
	return found
}

// awaitAnswer waits until a server of this machine's network serves the file: a Pod runs before its
// process listens, and a Service has it some time after.
func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, body, err := getURL(t.Context(), url)
		return err == nil && status == http.StatusOK && body == "hello\n"
	}, patience, interval, "%s does not answer", url)
}

func getURL(ctx context.Context, url string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// volumesAreRemoved deletes a claim, after the directory of its volume is seen, and waits until the
// volume and the directory are gone. The Pod of the volume goes first, and another one stays.
func volumesAreRemoved(t *testing.T, client kubernetes.Interface, root string) {
	t.Helper()
	core := client.CoreV1()
	stays := newPod("stays", "exec httpd -f -p 8080", corev1.RestartPolicyAlways)
	stays.Spec.Volumes, stays.Spec.Containers[0].VolumeMounts = nil, nil
	_, err := core.Pods(namespace).Create(t.Context(), stays, metav1.CreateOptions{})
	require.NoError(t, err)
	podBecomes(t, client, "stays", corev1.PodRunning)
	bound, err := core.PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	directory := filepath.Join(root, bound.Spec.VolumeName)
	require.FileExists(t, filepath.Join(directory, "index.html"))
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.NoError(t, core.PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := core.PersistentVolumes().Get(t.Context(), bound.Spec.VolumeName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval, "volume %s is not removed", bound.Spec.VolumeName)
	require.NoDirExists(t, directory)
}
