//go:build velero

package podvolume

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// hostPods is where Velero's node-agent looks for the volumes of Pods.
const hostPods = "/host_pods"

// holes is what volumefiles.Describe says about holes of files.
var holes = regexp.MustCompile(` sparse (true|false)$`)

// times is what it says about a time.
var times = regexp.MustCompile(`[0-9-]+T[0-9:.]+Z`)

// Two clusters share a bucket: in one Holdfast moves the data of volumes, in the other Velero's node-agent does, for Holdfast's
// requests. Each restores what the other stored, also after either has maintained the repositories.
func TestVeleroNodeAgent(t *testing.T) {
	require.Zero(t, os.Geteuid(), "Velero's node-agent has its directories below /: run this test as root")
	s3 := testbed.StartS3T(t)
	bucket := site.S3Bucket(t, s3, "default")
	own := startBed(t, s3, bucket)
	agent := startBed(t, s3, bucket, "--volume-mover=velero")
	agent.sharePassword(t, own)
	agent.startNodeAgent(t)

	want := map[string]map[string]map[string]string{}
	for name, b := range map[string]*bed{"ours": own, "theirs": agent} {
		dirs := b.createApplication(t, name, nil)
		want[name] = map[string]map[string]string{"data": describe(t, dirs["data"]), "scratch": describe(t, dirs["scratch"])}
		b.createBackup(t, name)
		b.BackupCompletes(t, name)
		b.requireRecorded(t, name, "data", "scratch")
	}
	exchange := func(t *testing.T, suffix string) {
		for name, b := range map[string]*bed{"ours": agent, "theirs": own} {
			b.awaitSynced(t, name)
			restored := b.restore(t, name, name+suffix)
			for volume, entries := range want[name] {
				require.Equal(t, entries, describe(t, restored[volume]), "volume %s of %s", volume, name)
			}
		}
	}
	t.Run("exchanged", func(t *testing.T) { exchange(t, "-copy") })
	for name := range want {
		require.Empty(t, volumefiles.Maintain(t, own.Site, bucket, name))
		agent.runMaintenance(t, name)
	}
	t.Run("maintained", func(t *testing.T) { exchange(t, "-later") })
}

// describe is volumefiles.Describe without what Velero's restore does not keep: holes of files, nanoseconds of links, and times of
// directories, which become those of the newest entry below them.
func describe(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries := volumefiles.Describe(t, dir)
	for name := range entries {
		entries[name] = holes.ReplaceAllString(entries[name], "")
		if strings.HasPrefix(entries[name], "L") || strings.HasPrefix(entries[name], "d") {
			entries[name] = times.ReplaceAllString(entries[name], "")
		}
	}
	return entries
}

// sharePassword gives the site the password of another's repositories, before it has one.
func (b *bed) sharePassword(t *testing.T, other *bed) {
	t.Helper()
	key := client.ObjectKey{Namespace: site.Server, Name: velerov1.RepositorySecret}
	theirs, ours := &corev1.Secret{}, &corev1.Secret{}
	for secret, c := range map[*corev1.Secret]client.Client{theirs: other.Client, ours: b.Client} {
		require.Eventually(t, func() bool { return c.Get(t.Context(), key, secret) == nil }, site.Patience, site.Look, "there is a password")
	}
	ours.Data = theirs.Data
	require.NoError(t, b.Client.Update(t.Context(), ours))
}

func (b *bed) awaitSynced(t *testing.T, backup string) {
	t.Helper()
	require.Eventually(t, func() bool {
		found := &velerov1.PodVolumeBackupList{}
		err := b.Client.List(t.Context(), found, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelBackupName: backup})
		return err == nil && len(found.Items) == 2 &&
			b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: backup}, &velerov1.Backup{}) == nil
	}, 2*site.Patience, site.Look, "backup %s is found in the bucket", backup)
}

// agentEnvironment is what the agent and its Pods have in a cluster.
func (b *bed) agentEnvironment(dir string) map[string]string {
	return map[string]string{
		"NODE_NAME": b.node.Name(), "VELERO_NAMESPACE": site.Server, "VELERO_SCRATCH_DIR": filepath.Join(dir, "scratch"), "KUBECONFIG": b.Cluster.Kubeconfig(), "HOME": dir,
	}
}

// startNodeAgent runs Velero's node-agent as a process, and what it finds in a cluster where it is installed.
func (b *bed) startNodeAgent(t *testing.T) {
	t.Helper()
	binary, err := testbed.Binary("velero")
	require.NoError(t, err)
	pods := filepath.Join(b.movers.Root(), "pods")
	require.NoError(t, os.MkdirAll(pods, 0o755))
	require.NoError(t, os.Symlink(pods, hostPods), "%s stands for a mount", hostPods)
	t.Cleanup(func() { _ = os.Remove(hostPods) })
	dir := t.TempDir()
	container := corev1.Container{Name: "node-agent", Image: "none", Command: []string{"/velero"}, Args: []string{"node-agent", "server"},
		VolumeMounts: []corev1.VolumeMount{{Name: "host-pods", MountPath: hostPods}}}
	var env []string
	for name, value := range b.agentEnvironment(dir) {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
		env = append(env, name+"="+value)
	}
	labels := map[string]string{"name": "node-agent", "role": "node-agent"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // nothing says that the node is there
		Containers:  []corev1.Container{container},
		Volumes:     []corev1.Volume{{Name: "host-pods", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: pods}}}},
	}}
	require.NoError(t, b.Client.Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "node-agent"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}))
	var running corev1.Pod
	require.Eventually(t, func() bool { // that the DaemonSet's controller made, for the scheduler
		made := &corev1.PodList{}
		if err := b.Client.List(t.Context(), made, client.InNamespace(site.Server), client.MatchingLabels(labels)); err != nil || len(made.Items) != 1 {
			return false
		}
		running = made.Items[0]
		return b.node.Adopt(t.Context(), site.Server, running.Name, true) == nil
	}, site.Patience, site.Look, "the Pod of the node-agent runs")
	require.NoError(t, os.MkdirAll(filepath.Join(pods, string(running.UID)), 0o755))
	moverpods.StartAgent(t, b.movers, site.Server, binary)
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: "node-agent", Path: binary, Args: []string{"node-agent", "server", "--metrics-address", "127.0.0.1:0"}, Env: env, LogDir: dir,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		process.Stop(20 * time.Second)
		if t.Failed() {
			t.Logf("Velero's node-agent:\n%s", testbed.Tail(process.LogPath(), 40))
		}
	})
}

// runMaintenance runs the maintenance of Velero's server for the repository of a namespace, as its jobs do.
func (b *bed) runMaintenance(t *testing.T, namespace string) {
	t.Helper()
	binary, err := testbed.Binary("velero")
	require.NoError(t, err)
	dir := t.TempDir()
	var env []string
	for name, value := range b.agentEnvironment(dir) {
		env = append(env, name+"="+value)
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: "maintenance", Path: binary, Env: env, LogDir: dir,
		Args: []string{"repo-maintenance", "--repo-name", namespace, "--repo-type", "kopia", "--backup-storage-location", b.bucket.Location},
	})
	require.NoError(t, err)
	<-process.Done()
	require.NoError(t, process.Err(), "%s", testbed.Tail(process.LogPath(), 20))
}
