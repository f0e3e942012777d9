//go:build node

package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	server   = "velero"
	patience = testbed.Patience
	look     = 50 * time.Millisecond
)

// bed is a cluster with a node, which has the images of the chart.
type bed struct {
	dir, kubeconfig string
	config          *rest.Config
	client          client.Client
	kube            kubernetes.Interface
}

// newBed starts a cluster as `make cluster-up NODES=1` does, which is taken down when the test ends in any way.
func newBed(t *testing.T) *bed {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	images, err := filepath.Glob(filepath.Join(root, ".out", "images", "*.tar"))
	require.NoError(t, err)
	require.NotEmpty(t, images, "run `make images ARCHS=$(go env GOARCH)`")
	program, err := testbed.Product("e2e/cluster")
	require.NoError(t, err)
	b := &bed{dir: filepath.Join(t.TempDir(), "cluster")}
	b.kubeconfig = filepath.Join(b.dir, "kubeconfig")
	held, err := node.Hold(program, t.Output(), "--dir", b.dir, "--images", strings.Join(images, ","))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, held.Release()) })
	require.NoError(t, held.AwaitReady(t.Context()))
	b.config, err = clientcmd.BuildConfigFromFlags("", b.kubeconfig)
	require.NoError(t, err)
	b.config.QPS = -1
	ctrllog.SetLogger(logr.Discard())
	b.client, err = client.New(b.config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.kube, err = kubernetes.NewForConfig(b.config)
	require.NoError(t, err)
	return b
}

// runProgram runs a program with the kubeconfig of the cluster and returns its standard output; the test
// fails when the program does. It may be run by a cleanup, when the context of the test has ended.
func (b *bed) runProgram(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := b.tryProgram(context.WithoutCancel(t.Context()), program, args...)
	require.NoError(t, err)
	return out
}

// tryProgram is run for a program that may fail. The error has what it printed.
func (b *bed) tryProgram(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = &programError{program: filepath.Base(program), args: args, output: string(out) + errs.String(), err: err}
	}
	return string(out), err
}

type programError struct {
	program string
	args    []string
	output  string
	err     error
}

func (e *programError) Error() string {
	return e.program + " " + strings.Join(e.args, " ") + ": " + e.err.Error() + ": " + e.output
}

func (e *programError) Unwrap() error { return e.err }

// runTool runs a binary of the test bed.
func (b *bed) runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	binary, err := testbed.Binary(name)
	require.NoError(t, err)
	return b.runProgram(t, binary, args...)
}

// runHelm runs helm on the chart in a directory, with the values that the cluster was given, and waits
// until everything is ready.
func (b *bed) runHelm(t *testing.T, directory, verb string, args ...string) {
	t.Helper()
	all := []string{verb, chart.Release}
	switch verb {
	case "install", "upgrade":
		all = append(all, directory, "--values", filepath.Join(b.dir, "values.yaml"), "--create-namespace")
		if verb == "upgrade" {
			all = all[:len(all)-1]
		}
	}
	all = append(all, args...)
	_, err := chart.Helm(t.Context(), t.TempDir(), append(all, "--namespace", server, "--kubeconfig", b.kubeconfig, "--wait", "--timeout="+patience.String())...)
	require.NoError(t, err)
}

// installChart installs the chart of this checkout, and waits until its location can be used.
func (b *bed) installChart(t *testing.T, args ...string) {
	t.Helper()
	directory, err := chart.Dir()
	require.NoError(t, err)
	b.runHelm(t, directory, "install", args...)
	b.awaitUsable(t)
}

// upgradeChart upgrades to the chart of this checkout.
func (b *bed) upgradeChart(t *testing.T, args ...string) {
	t.Helper()
	directory, err := chart.Dir()
	require.NoError(t, err)
	b.runHelm(t, directory, "upgrade", args...)
}

// awaitUsable waits until the bucket can be used.
func (b *bed) awaitUsable(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var location velerov1.BackupStorageLocation
		err := b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "default"}, &location)
		return err == nil && location.Status.Phase == velerov1.LocationPhaseAvailable
	}, patience, look, "the location becomes available")
}

// servicePods returns the Pods of a service that are not ending, by name.
func (b *bed) servicePods(t *testing.T, service string) map[string]*corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	require.NoError(t, b.client.List(t.Context(), list, client.InNamespace(server), client.MatchingLabels{"app.kubernetes.io/component": service}))
	found := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
			found[pod.Name] = pod
		}
	}
	return found
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (b *bed) createNamespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, b.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// createBackup requests a backup of a namespace.
func (b *bed) createBackup(ctx context.Context, name, namespace string) error {
	return b.client.Create(ctx, &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name}, Spec: velerov1.BackupSpec{IncludedNamespaces: []string{namespace}},
	})
}

// awaitEnded waits for the end of a backup.
func (b *bed) awaitEnded(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: name}, backup) == nil && backup.Status.Phase.Terminal()
	}, patience, look, "backup %s ends", name)
	return backup
}

// awaitCompleted waits for the end of a backup, which is to be Completed.
func (b *bed) awaitCompleted(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := b.awaitEnded(t, name)
	if backup.Status.Phase != velerov1.BackupPhaseCompleted {
		t.Fatal(b.runTool(t, "velero", "--namespace", server, "backup", "describe", name, "--details", "--colorized=false"))
	}
	return backup
}
