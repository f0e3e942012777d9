package fault

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// beginHookedRestore restores a Pod with two hooks, and has the node run it.
func beginHookedRestore(ctx context.Context, b *Bed, name string) error {
	err := b.apiClient.createObject(ctx, &velerov1.Restore{ObjectMeta: namedMeta(name), Spec: velerov1.RestoreSpec{
		BackupName: prepared, IncludedNamespaces: []string{hooked}, IncludedResources: []string{"pods"}, NamespaceMapping: map[string]string{hooked: name},
		Hooks: velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{{Name: "h", PostHooks: []velerov1.RestoreResourceHook{
			{Exec: &velerov1.ExecRestoreHook{Command: []string{"load"}}}, {Exec: &velerov1.ExecRestoreHook{Command: []string{"open"}}},
		}}}},
	}})
	if err != nil {
		return err
	}
	return pollUntil(ctx, patience, "the restored pod runs", func() (bool, error) {
		return b.hooks.node.Adopt(ctx, name, "db", true) == nil, nil // it is not there yet
	})
}

func observeHookedRestore(ctx context.Context, b *Bed, name string) (Facts, error) {
	f, err := observeRestore(ctx, b, name)
	if err != nil {
		return nil, err
	}
	restore, err := b.apiClient.awaitRestored(ctx, name)
	if err == nil && restore.Status.HookStatus == nil {
		err = errors.New("no hookStatus")
	}
	if err != nil {
		return nil, err
	}
	f["hooks"] = fmt.Sprintf("%d, %d failed", restore.Status.HookStatus.HooksAttempted, restore.Status.HookStatus.HooksFailed)
	b.hooks.addRun(f)
	return f, nil
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
