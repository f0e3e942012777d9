package field

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

// runPods has the node run Pods, all at once: restored ones that share a claim wait for the same data.
func (r *run) runPods(texts []string) {
	var running sync.WaitGroup
	failures := make([]error, len(texts))
	for i, text := range texts {
		ref, err := r.resolveText(text, false)
		require.NoError(r.t, err, text)
		running.Go(func() { failures[i] = r.runPod(client.ObjectKey{Namespace: ref.namespace, Name: ref.name}) })
	}
	running.Wait()
	require.NoError(r.t, errors.Join(failures...))
}

// runPod returns when a Pod runs. In a case with movers the node has its volumes, and one that a restore created waits for their data.
func (r *run) runPod(key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), caseTime)
	defer cancel()
	pod, err := r.takePod(ctx, key)
	for err != nil && ctx.Err() == nil {
		r.pauseFor(longestPause)
		pod, err = r.takePod(ctx, key)
	}
	switch {
	case err != nil:
		return err
	case r.Movers && slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == podvolume.WaitContainer }):
		return r.movers.WaitRestored(ctx, pod)
	}
	return r.node.Ready(ctx, pod)
}

// takePod gives a Pod that is there the node, and mounts its volumes.
func (r *run) takePod(ctx context.Context, key client.ObjectKey) (*corev1.Pod, error) {
	pod, err := r.node.Bind(ctx, key.Namespace, key.Name)
	if err == nil && r.Movers {
		_, err = r.movers.MountVolumes(ctx, pod)
	}
	return pod, err
}

// openVolume returns the directory of a volume of a Pod "namespace/name".
func (b *bed) openVolume(ctx context.Context, text, volume string) (string, error) {
	namespace, name, _ := strings.Cut(text, "/")
	pod := &corev1.Pod{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return "", err
	}
	dirs, err := b.movers.MountVolumes(ctx, pod)
	if err == nil && dirs[volume] == "" {
		err = fmt.Errorf("Pod %s has no volume %s", text, volume)
	}
	return dirs[volume], err
}

// changeFile makes or removes a file "volume/name" of a Pod.
func (b *bed) changeFile(ctx context.Context, pod string, there bool, path string) error {
	volume, name, _ := strings.Cut(path, "/")
	dir, err := b.openVolume(ctx, pod, volume)
	if err == nil && there {
		err = os.WriteFile(filepath.Join(dir, name), nil, 0o600)
	} else if err == nil {
		err = os.Remove(filepath.Join(dir, name))
	}
	return err
}

func (r *run) writeFiles(step *volumeFiles) {
	dir, err := r.openVolume(r.t.Context(), step.Pod, step.Volume)
	require.NoError(r.t, err)
	for name, content := range step.Files {
		require.NoError(r.t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// checkFile compares the content of a file in a volume of a Pod.
func (r *run) checkFile(ctx context.Context, e *expectation) error {
	volume, name, _ := strings.Cut(e.File, "/")
	dir, err := r.openVolume(ctx, e.Pod, volume)
	if err != nil {
		return err
	}
	if e.Absent {
		_, err = os.Lstat(filepath.Join(dir, name))
		if err == nil {
			return fmt.Errorf("%s of Pod %s is there", e.File, e.Pod)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, name))
	switch {
	case err != nil:
		return err
	case e.Is == nil || string(content) != *e.Is:
		return fmt.Errorf("file %s of Pod %s is %q", e.File, e.Pod, content)
	}
	return nil
}
