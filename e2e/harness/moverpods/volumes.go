package moverpods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// waitContainer is the init container of a restored Pod that waits for the data of its volumes.
const waitContainer = "restore-wait"

// MountVolumes makes the directories of a Pod's volumes below Root, as a kubelet that mounts them, and returns
// them by the names of the volumes. The directory of a PersistentVolume is the same for all Pods that have it.
func (m *Movers) MountVolumes(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	dirs := map[string]string{}
	for i := range pod.Spec.Volumes {
		dir, err := m.mountPodVolume(ctx, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return nil, fmt.Errorf("volume %s of Pod %s: %w", pod.Spec.Volumes[i].Name, pod.Name, err)
		}
		dirs[pod.Spec.Volumes[i].Name] = dir
	}
	return dirs, nil
}

func (m *Movers) mountPodVolume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	of := func(plugin, name string) string {
		return filepath.Join(m.Root(), "pods", string(pod.UID), "volumes", plugin, name)
	}
	if v.PersistentVolumeClaim == nil {
		dir := of("kubernetes.io~empty-dir", v.Name)
		if v.ConfigMap != nil {
			dir = of("kubernetes.io~configmap", v.Name)
		}
		return dir, os.MkdirAll(dir, 0o777)
	}
	claim, err := m.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("claim %s is not bound", claim.Name)
	}
	dir := filepath.Join(m.dir, "storage", claim.Spec.VolumeName)
	parent := of("kubernetes.io~csi", claim.Spec.VolumeName)
	for _, path := range []string{dir, parent} {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return "", err
		}
	}
	if err := os.Symlink(dir, filepath.Join(parent, "mount")); err != nil && !os.IsExist(err) { // a link stands for a mount
		return "", err
	}
	return dir, nil
}

// WaitRestored mounts the volumes of a restored Pod, which has a node, and runs its init container that waits for their data;
// the Pod runs when it returns.
func (m *Movers) WaitRestored(ctx context.Context, pod *corev1.Pod) error {
	dirs, err := m.MountVolumes(ctx, pod)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == waitContainer })
	if i < 0 {
		return fmt.Errorf("Pod %s has no init container %s", pod.Name, waitContainer)
	}
	container := &pod.Spec.InitContainers[i]
	links := filepath.Join(m.dir, "restores-"+string(pod.UID))
	if err := os.MkdirAll(links, 0o755); err != nil {
		return err
	}
	for _, mounted := range container.VolumeMounts {
		if dir := dirs[mounted.Name]; dir != "" && filepath.Dir(mounted.MountPath) == "/restores" {
			if err := os.Symlink(dir, filepath.Join(links, filepath.Base(mounted.MountPath))); err != nil {
				return err
			}
		}
	}
	if err := m.node.Initialise(ctx, pod, waitContainer); err != nil {
		return err
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: waitContainer + "-" + string(pod.UID), Path: m.binary, Args: append(waitWords(container), "--dir", links), LogDir: m.dir,
	})
	if err != nil {
		return err
	}
	select {
	case <-process.Done():
		if process.Err() != nil {
			return process.EarlyEnd()
		}
	case <-ctx.Done():
		process.Stop(stopGrace)
		return fmt.Errorf("the data of Pod %s does not come: %w", pod.Name, ctx.Err())
	}
	return m.node.Ready(ctx, pod)
}

// waitWords are the arguments of the init container. That of Velero's restores has a program of its own, for which volume-mover's stands.
func waitWords(c *corev1.Container) []string {
	if slices.Equal(c.Command, []string{"/velero-restore-helper"}) {
		return append([]string{"wait"}, c.Args...)
	}
	return commandWords(c)
}
