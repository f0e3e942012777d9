package moverpods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// hostPods is where Velero's node-agent looks for the volumes of Pods.
const hostPods = "/host_pods"

// AgentLabels are on the Pods that Velero's node-agent makes, one for each kind of request.
var AgentLabels = []string{"velero.io/pod-volume-backup", "velero.io/pod-volume-restore", "velero.io/data-upload", "velero.io/data-download"}

// Agent is Velero's published node-agent, a process on the node of a site. One runs at a time on a machine.
type Agent struct {
	site   *site.Site
	movers *Movers
	binary string
}

// labelMaintenance is on the Pods of the jobs that Velero's server makes.
const labelMaintenance = "velero.io/repo-name"

// messageWrapper gives a process the file of its message at the path that Velero knows by heart.
var messageWrapper = []string{"unshare", "--mount", "sh", "-ec",
	`touch "$0" ` + corev1.TerminationMessagePathDefault + `; mount --bind "$0" ` + corev1.TerminationMessagePathDefault + `; exec "$@"`}

// StartAgent runs Velero's node-agent, what it finds in a cluster where it is installed, the Pods that it makes, and those that Velero's
// server does, until the test is done.
func StartAgent(t *testing.T, s *site.Site, m *Movers) *Agent {
	t.Helper()
	require.Zero(t, os.Geteuid(), "Velero's node-agent has its directories below /: run this test as root")
	binary, err := testbed.Binary("velero")
	require.NoError(t, err)
	a := &Agent{site: s, movers: m, binary: binary}
	pods := filepath.Join(m.Root(), "pods")
	require.NoError(t, os.MkdirAll(pods, 0o755))
	require.NoError(t, os.Symlink(pods, hostPods), "%s stands for a mount", hostPods)
	t.Cleanup(func() { _, _ = os.Remove(hostPods), os.Remove(corev1.TerminationMessagePathDefault) })
	dir := t.TempDir()
	running := a.installAgent(t, pods, dir)
	require.NoError(t, os.MkdirAll(filepath.Join(pods, string(running.UID)), 0o755))
	for _, label := range append(AgentLabels, labelMaintenance) {
		served := newMovers(m.node, m.client, binary, m.dir, m.directory)
		served.wrapper, served.env = messageWrapper, formatVariables(a.buildEnvironment(dir))
		served.watchPods(t, site.Server, label)
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: "node-agent", Path: binary, Args: append(agentArgs, "--metrics-address", "127.0.0.1:0"), Env: formatVariables(a.buildEnvironment(dir)), LogDir: dir,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		process.Stop(stopGrace)
		if t.Failed() {
			t.Logf("Velero's node-agent:\n%s", testbed.Tail(process.LogPath(), 60))
		}
	})
	return a
}

// agentArgs are those of the agent's container.
var agentArgs = []string{"node-agent", "server", "--features=EnableCSI"}

// buildEnvironment returns what the agent and its Pods have in a cluster.
func (a *Agent) buildEnvironment(dir string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "NODE_NAME", Value: a.movers.node.Name()}, {Name: "VELERO_NAMESPACE", Value: site.Server},
		{Name: "VELERO_SCRATCH_DIR", Value: filepath.Join(dir, "scratch")}, {Name: "KUBECONFIG", Value: a.site.Cluster.Kubeconfig()}, {Name: "HOME", Value: dir},
	}
}

// formatVariables returns variables as a process gets them.
func formatVariables(variables []corev1.EnvVar) []string {
	return environment(&corev1.Container{Env: variables})
}

// installAgent makes the DaemonSet that the agent reads what its Pods are like from, and returns the Pod of it, which runs.
func (a *Agent) installAgent(t *testing.T, pods, dir string) (running corev1.Pod) {
	t.Helper()
	labels := map[string]string{"name": "node-agent", "role": "node-agent"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // nothing says that the node is there
		Containers: []corev1.Container{{Name: "node-agent", Image: "none", Command: []string{"/velero"}, Args: agentArgs, Env: a.buildEnvironment(dir),
			VolumeMounts: []corev1.VolumeMount{{Name: "host-pods", MountPath: hostPods}}}},
		Volumes: []corev1.Volume{{Name: "host-pods", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: pods}}}},
	}}
	require.NoError(t, a.site.Client.Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "node-agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}))
	require.Eventually(t, func() bool { // that the DaemonSet's controller made, for the scheduler
		made := &corev1.PodList{}
		if err := a.site.Client.List(t.Context(), made, client.InNamespace(site.Server), client.MatchingLabels(labels)); err != nil || len(made.Items) != 1 {
			return false
		}
		running = made.Items[0]
		return a.movers.node.Adopt(t.Context(), site.Server, running.Name, true) == nil
	}, site.Patience, site.Look, "the Pod of the node-agent runs")
	return running
}

// Maintain runs the maintenance of Velero's server for the repository of a namespace in a location, as its jobs do.
func (a *Agent) Maintain(t *testing.T, namespace, location string) {
	t.Helper()
	dir := t.TempDir()
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: "maintenance", Path: a.binary, Env: formatVariables(a.buildEnvironment(dir)), LogDir: dir,
		Args: []string{"repo-maintenance", "--repo-name", namespace, "--repo-type", "kopia", "--backup-storage-location", location},
	})
	require.NoError(t, err)
	select {
	case <-process.Done():
	case <-time.After(site.Patience):
		process.Kill()
	}
	require.NoError(t, process.Err(), "%s", testbed.Tail(process.LogPath(), 20))
}
