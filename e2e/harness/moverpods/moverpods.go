// Package moverpods plays the kubelet for mover Pods: the arguments of their container run as a process of
// volume-mover, in which each path of a mount is replaced by the directory that it stands for. It also has the
// directories of volumes, and runs the init container that waits for them in a restored Pod.
package moverpods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Label is on each mover Pod.
const Label = "holdfast.io/mover"

// Movers runs the mover Pods of a namespace. Safe for concurrent use.
type Movers struct {
	node   *kubelet.Node
	client kubernetes.Interface
	binary string
	dir    string
	// wrapper is a command that runs the binary, with the file of the termination message before it; env is what the process has in
	// addition. Those of Velero's node-agent have them.
	wrapper, env []string
	// directory finds the directory or device of a CSI volume by its handle.
	directory func(handle string) (string, error)

	runs sync.WaitGroup
	mu   sync.Mutex
	pods map[types.UID]*moverPod
	hold *hold // nil: nothing is held
	held map[string]bool
}

// hold keeps movers from doing anything.
type hold struct {
	over    chan struct{} // closed by Release and Crash
	crashed bool          // set before over is closed
}

// Start runs mover Pods on a node until the test is done. directory finds the directory or device of a CSI volume by its handle, for movers that
// mount claims.
func Start(t *testing.T, config *rest.Config, namespace string, node *kubelet.Node, directory func(handle string) (string, error)) *Movers {
	t.Helper()
	binary, err := testbed.Product("volume-mover")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	m := newMovers(node, client, binary, t.TempDir(), directory)
	require.NoError(t, os.Mkdir(m.Root(), 0o755))
	node.ServeLogs(m.logPath)
	m.watchPods(t, namespace, Label)
	return m
}

func newMovers(node *kubelet.Node, client kubernetes.Interface, binary, dir string, directory func(string) (string, error)) *Movers {
	return &Movers{node: node, client: client, binary: binary, dir: dir, directory: directory, pods: map[types.UID]*moverPod{}, held: map[string]bool{}}
}

// watchPods runs the Pods with a label until the test is done.
func (m *Movers) watchPods(t *testing.T, namespace, label string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory := informers.NewSharedInformerFactoryWithOptions(m.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.notePod(ctx, o) },
		UpdateFunc: func(_, o any) { m.notePod(ctx, o) },
		DeleteFunc: m.endPodProcess,
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		m.runs.Wait()
		if t.Failed() {
			m.showLogs(t)
		}
	})
}

// Root is the value of --kubelet-root.
func (m *Movers) Root() string { return filepath.Join(m.dir, "kubelet") }

// notePod runs a Pod that is new, and ends the process of one that is being deleted.
func (m *Movers) notePod(ctx context.Context, object any) {
	pod := object.(*corev1.Pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	run, known := m.pods[pod.UID]
	if !known {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			m.runs.Go(func() { m.schedulePod(ctx, pod) })
			return
		}
		if pod.Spec.NodeName != m.node.Name() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return
		}
		run = &moverPod{movers: m, pod: pod.DeepCopy(), dir: filepath.Join(m.dir, string(pod.UID)), deleted: make(chan struct{})}
		m.pods[pod.UID] = run
		m.runs.Go(func() { run.runPod(ctx) })
	}
	if pod.DeletionTimestamp != nil {
		run.markDeleted()
	}
}

// endPodProcess ends the process of a Pod that is gone.
func (m *Movers) endPodProcess(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if run := m.pods[object.(*corev1.Pod).UID]; run != nil {
		run.markDeleted()
	}
}

// Hold keeps movers that start from now on from doing anything, although their Pods run, until Release or Crash.
func (m *Movers) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = &hold{over: make(chan struct{})}
}

// Release lets the movers that are held go on.
func (m *Movers) Release() { m.endHold(false) }

// Crash ends the movers that are held as SIGKILL does.
func (m *Movers) Crash() { m.endHold(true) }

func (m *Movers) endHold(crash bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != nil {
		m.hold.crashed = crash
		close(m.hold.over)
		m.hold = nil
	}
}

// Held returns how many movers have been held.
func (m *Movers) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

// waitHeld waits for as long as movers are held. A code other than 0 is that of a mover that was ended meanwhile.
func (m *Movers) waitHeld(ctx context.Context, run *moverPod) (code int) {
	m.mu.Lock()
	held := m.hold
	if held != nil {
		m.held[run.pod.Name] = true
	}
	m.mu.Unlock()
	if held == nil {
		return 0
	}
	select {
	case <-held.over:
		if held.crashed {
			return killed
		}
		return 0
	case <-run.deleted:
	case <-ctx.Done():
	}
	return terminated
}

func (m *Movers) logPath(_, pod string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, run := range m.pods {
		if run.pod.Name == pod {
			return filepath.Join(run.dir, pod+".log")
		}
	}
	return ""
}

// showLogs adds what movers said to the log of a failed test.
func (m *Movers) showLogs(t *testing.T) {
	t.Helper()
	for _, run := range m.pods {
		t.Logf("mover %s ended with %s:\n%s", run.pod.Name, fmt.Sprint(run.ended), testbed.Tail(filepath.Join(run.dir, run.pod.Name+".log"), 8))
	}
}
