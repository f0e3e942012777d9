package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// VeleroServer is what Velero's published server runs with.
type VeleroServer struct {
	Cluster             *Cluster
	Namespace, Location string
	Dir                 string   // its home, with its log and those of earlier runs
	Flags               []string // further ones
	// Beside are the addresses on loopback that the server needs where it runs beside Velero's node-agent: both take port 8080. It is
	// in a network of its own then.
	Beside []string
}

// veleroGrace is how long the server has to end.
const veleroGrace = 20 * time.Second

// StartVeleroT runs Velero's published server, with its plugin for AWS, until the process is stopped or the test is done.
func StartVeleroT(tb testing.TB, s VeleroServer) *Process {
	tb.Helper()
	paths := map[string]string{}
	for _, name := range []string{"velero", "velero-plugin-for-aws"} {
		path, err := Binary(name)
		if err != nil {
			tb.Fatal(err)
		}
		paths[name] = path
	}
	plugins := filepath.Join(tb.TempDir(), "plugins")
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(paths["velero-plugin-for-aws"], filepath.Join(plugins, "velero-plugin-for-aws")); err != nil {
		tb.Fatal(err)
	}
	command := []string{paths["velero"]}
	if len(s.Beside) > 0 {
		command = []string{"nsenter", "--net=" + privateNetwork(tb, s.Beside), paths["velero"]}
	}
	process, err := StartProcess(ProcessSpec{
		Name: "velero-server", Path: command[0], LogDir: s.Dir,
		Args: slices.Concat(command[1:], []string{
			"server", "--kubeconfig", s.Cluster.Kubeconfig(), "--namespace", s.Namespace, "--plugin-dir", plugins,
			"--default-backup-storage-location", s.Location, "--backup-sync-period", "1s", "--store-validation-frequency", "1s",
			"--metrics-address", "127.0.0.1:0", "--uploader-type", "kopia",
		}, s.Flags),
		Env: []string{"VELERO_NAMESPACE=" + s.Namespace, "VELERO_SCRATCH_DIR=" + tb.TempDir(), "KUBECONFIG=" + s.Cluster.Kubeconfig(), "HOME=" + s.Dir},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		process.Stop(veleroGrace)
		if tb.Failed() {
			tb.Logf("Velero's server:\n%s", Tail(process.LogPath(), 40))
		}
	})
	return process
}

// CreateVeleroDeployment makes the Deployment that Velero 1.18 reads the image of restore helpers from, also
// when its server runs elsewhere.
func CreateVeleroDeployment(tb testing.TB, cluster *Cluster, namespace string) {
	tb.Helper()
	c, err := kubernetes.NewForConfig(cluster.RestConfig())
	if err != nil {
		tb.Fatal(err)
	}
	labels := map[string]string{"component": "velero"}
	_, err = c.AppsV1().Deployments(namespace).Create(tb.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "velero"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Image: "velero/velero:v1.18.3"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
}
