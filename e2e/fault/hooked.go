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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const hooked = "fault-hooks" // a namespace with a Pod that runs and has hooks

// hookNode runs hooks, and counts them.
type hookNode struct {
	node *kubelet.Node

	mu     sync.Mutex
	counts map[string]int
	frozen bool
}

func (n *hookNode) runCommand(_ context.Context, r *kubetest.ExecRequest, _, _ io.Writer) error {
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
	if n.node, err = kubelet.Start(ctx, b.cluster.RestConfig(), hooked, &kubetest.ExecHandler{Run: n.runCommand}); err != nil {
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

// addHooks adds the counts of hooks of a backup, and what ran.
func addHooks(ctx context.Context, b *Bed, name string, f Facts) error {
	backup, err := b.apiClient.awaitEnded(ctx, name)
	return errors.Join(err, b.hooks.addStatus(f, backup.Status.HookStatus))
}

// addRestoreHooks adds those of a restore.
func addRestoreHooks(ctx context.Context, b *Bed, name string, f Facts) error {
	restore, err := b.apiClient.awaitRestored(ctx, name)
	return errors.Join(err, b.hooks.addStatus(f, restore.Status.HookStatus))
}

func (n *hookNode) addStatus(f Facts, status *velerov1.HookStatus) error {
	if status == nil {
		return errors.New("no hookStatus")
	}
	f["hooks"] = fmt.Sprintf("%d, %d failed", status.HooksAttempted, status.HooksFailed)
	n.addHookRun(f)
	return nil
}

// addHookRun adds what ran.
func (n *hookNode) addHookRun(f Facts) {
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

// beginHookedRestore restores a Pod with two hooks, and has the node run it.
func beginHookedRestore(ctx context.Context, b *Bed, name string) error {
	err := restoreOf(hooked, func(r *velerov1.RestoreSpec) {
		r.IncludedResources = []string{"pods"}
		r.Hooks.Resources = []velerov1.RestoreResourceHookSpec{{Name: "h", PostHooks: []velerov1.RestoreResourceHook{
			{Exec: &velerov1.ExecRestoreHook{Command: []string{"load"}}}, {Exec: &velerov1.ExecRestoreHook{Command: []string{"open"}}},
		}}}
	})(ctx, b, name)
	if err != nil {
		return err
	}
	return pollUntil(ctx, patience, "the restored pod runs", func() (bool, error) {
		return b.hooks.node.Adopt(ctx, name, "db", true) == nil, nil // it is not there yet
	})
}

// removeHookedRestore removes the Pod at once: the node confirms no deletion.
func removeHookedRestore(ctx context.Context, b *Bed, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "db"}}
	if err := client.IgnoreNotFound(b.client.Delete(ctx, pod, client.GracePeriodSeconds(0))); err != nil {
		return err
	}
	return removeNamespace(ctx, b, name)
}

// unclearRestoreHook is what differs by right where a process died in the middle of a hook.
var unclearRestoreHook = Facts{
	"warnings": "^1$", "hooks": "^2, 1 failed$",
	"document restore-NAME-results.gz": "the runner ended while the hook ran, which is not run again",
}
