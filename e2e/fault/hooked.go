package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec/podexectest"
)

const hooked = "fault-hooks" // a namespace with a Pod that runs and has hooks

// hookNode runs hooks, and counts them.
type hookNode struct {
	node *kubelet.Node

	mu     sync.Mutex
	counts map[string]int
	frozen bool
}

func (n *hookNode) runCommand(_ context.Context, r *podexectest.Request, _, _ io.Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[r.Command[0]]++
	n.frozen = r.Command[0] == "freeze"
	return nil
}

// plantHooked makes a node, and a Pod with hooks on it.
func (b *Bed) plantHooked(ctx context.Context) (err error) {
	n := &b.hooks
	n.counts = map[string]int{}
	if n.node, err = kubelet.Start(ctx, b.cluster.RestConfig(), hooked, &podexectest.Handler{Run: n.runCommand}); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hooked}}
	if err := b.client.Create(ctx, namespace); err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: hooked, Name: "db", Annotations: map[string]string{
			"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}},
	}
	return pollUntil(ctx, patience, "pod "+pod.Name+" runs", func() (bool, error) {
		return n.node.Run(ctx, pod) == nil, nil // refused until the namespace has its service account
	})
}

func prepareHooked(_ context.Context, b *Bed, _ string) error {
	b.hooks.mu.Lock()
	defer b.hooks.mu.Unlock()
	clear(b.hooks.counts)
	return nil
}

func beginHooked(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{hooked}, IncludedResources: []string{"pods"}}})
}

func observeHooked(ctx context.Context, b *Bed, name string) (Facts, error) {
	f, err := observeBackup(ctx, b, name)
	if err != nil {
		return nil, err
	}
	backup, err := b.apiClient.awaitEnded(ctx, name)
	if err == nil && backup.Status.HookStatus == nil {
		err = errors.New("no hookStatus")
	}
	if err != nil {
		return nil, err
	}
	f["hooks"] = fmt.Sprintf("%d, %d failed", backup.Status.HookStatus.HooksAttempted, backup.Status.HookStatus.HooksFailed)
	b.hooks.addRun(f)
	return f, nil
}

// addRun adds what ran.
func (n *hookNode) addRun(f Facts) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f["frozen"] = strconv.FormatBool(n.frozen)
	for command, times := range n.counts {
		f["hook "+command] = strconv.Itoa(times)
	}
}

// What differs by right where a process died in the middle of a hook: a pre hook is not run again,
// a post hook is.
var (
	unclearHook = Facts{
		"phase": "^PartiallyFailed$", "errors": "^1$", "hooks": "^2, 1 failed$",
		"document NAME-results.gz": "the runner ended while the hook ran, which is not run again",
	}
	hookLate  = Facts{"warnings": "^1$", "document NAME-results.gz": "post hook runs again"}
	hookAgain = Facts{"warnings": "^1$", "document NAME-results.gz": "post hook runs again", "hook thaw": "^2$"}
)
