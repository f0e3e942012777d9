package field

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// bed is the cluster that all cases share, with the services and one node on it, which has as much of a kubelet as commands and movers take.
type bed struct {
	*site.Site
	whole     *testing.T // the test of all cases: buckets outlive their cases, since services look into every location
	node      *kubelet.Node
	movers    *moverpods.Movers
	s3        *testbed.S3 // of the cases with volume data
	commands  *commandLog
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	kinds     meta.RESTMapper // those that are there before the cases
	backups   backupGate
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{whole: t, commands: &commandLog{ran: map[string][]string{}}}
	b.backups.changed.L = &b.backups.mu
	b.Site = site.Start(t, site.Config{AdmissionRefuses: true, Arrange: b.startNode, Args: map[string][]string{
		"queue-scheduler":         {"--concurrent-backups=24", "--concurrent-restores=24", "--features=EnableCSI"}, // no driver is here: it counts in the validation alone
		"restore-runner":          {"--restore-wait-image=none"},
		"async-operation-monitor": {"--item-operation-sync-frequency=1s", "--item-operation-cancel-grace-period=10s"},
		"volume-mover":            {"--mover-image=none", "--movers-per-node=8", "--duty-timeout=2s"},
	}})
	b.s3 = testbed.StartS3T(t)
	require.NoError(t, b.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: s3Secret},
		StringData: map[string]string{"cloud": b.s3.CredentialsFile()}}))
	var err error
	b.dynamic, err = dynamic.NewForConfig(b.Cluster.RestConfig())
	require.NoError(t, err)
	b.discovery, err = discovery.NewDiscoveryClientForConfig(b.Cluster.RestConfig())
	require.NoError(t, err)
	b.kinds, err = b.discoverKinds()
	require.NoError(t, err)
	// The default location is there for cases that name none; each case has its own.
	bucket, dir := site.FileBucket(t, "default")
	b.ReachFiles(t, dir, bucket)
	location := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "default"}}
	require.NoError(t, b.Client.Patch(t.Context(), location, mergePatch(`{"spec":{"default":true}}`)))
	return b
}

// s3Secret is the Secret with the keys of the S3 server.
const s3Secret = "s3"

// startNode starts the node and its movers, and returns the flags of the service that makes them.
func (b *bed) startNode(s *site.Site) map[string][]string {
	var err error
	b.node, err = kubelet.Start(b.whole.Context(), s.Cluster.RestConfig(), "node", &kubetest.ExecHandler{Run: b.runCommand})
	require.NoError(b.whole, err)
	b.whole.Cleanup(b.node.Close)
	b.movers = moverpods.Start(b.whole, s.Cluster.RestConfig(), site.Server, b.node, nil)
	return map[string][]string{"volume-mover": {"--kubelet-root=" + b.movers.Root()}}
}

// restartServices replaces every service by a new process.
func (b *bed) restartServices(t *testing.T) {
	t.Helper()
	for _, m := range slices.Clone(b.Fleet.Members) {
		_, err := b.Fleet.Restart(t.Context(), m)
		require.NoError(t, err)
	}
	require.Len(t, b.Fleet.Members, len(fleet.Services))
}

// backupGate keeps backups and deletions of definitions apart: a kind that goes meanwhile is an error of the backups that list its objects. Deletions
// that wait come before backups that begin, and all together, so that backups stand still seldom.
type backupGate struct {
	mu                         sync.Mutex
	running, waiting, deleting int
	changed                    sync.Cond // of mu
}

// runBackup calls do when no definition is deleted.
func (g *backupGate) runBackup(do func()) {
	g.enterWhen(func() bool { return g.waiting+g.deleting == 0 }, &g.running)
	defer g.leaveAs(&g.running)
	do()
}

// runDeletion calls do when no backup runs.
func (g *backupGate) runDeletion(do func()) {
	g.mu.Lock()
	g.waiting++
	g.mu.Unlock()
	g.enterWhen(func() bool { return g.running == 0 }, &g.deleting)
	defer g.leaveAs(&g.deleting)
	g.leaveAs(&g.waiting)
	do()
}

func (g *backupGate) enterWhen(free func() bool, as *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !free() {
		g.changed.Wait()
	}
	*as++
}

func (g *backupGate) leaveAs(as *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*as--
	g.changed.Broadcast()
}

// commandLog notes the commands that hooks run in Pods of the node.
type commandLog struct {
	mu  sync.Mutex
	ran map[string][]string // by namespace/name of the Pod: the first words
}

// runCommand prints a line. The command "fail" ends with code 1, "hang" with its connection; "touch" and "rm" change a file "volume/name" of the Pod.
func (b *bed) runCommand(ctx context.Context, r *kubetest.ExecRequest, stdout, _ io.Writer) error {
	pod := r.Namespace + "/" + r.Pod
	b.commands.noteCommand(pod, r.Command[0])
	switch r.Command[0] {
	case "fail":
		return &kubetest.ExecExitError{Code: 1}
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "touch", "rm":
		return b.changeFile(ctx, pod, r.Command[0] == "touch", r.Command[1])
	}
	_, err := fmt.Fprintf(stdout, "%s done\n", r.Command[0])
	return err
}

func (l *commandLog) noteCommand(pod, command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[pod] = append(l.ran[pod], command)
}

func (l *commandLog) listCommands(pod string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ran[pod])
}
