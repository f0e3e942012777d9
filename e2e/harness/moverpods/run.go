package moverpods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const (
	// stopGrace is how long a mover may take to end after SIGTERM.
	stopGrace = 20 * time.Second
	// messageBytes is the longest termination message of a container.
	messageBytes = 4096
	// terminated and killed are the exit codes of processes that SIGTERM and SIGKILL ended.
	terminated = 143
	killed     = 137
)

// moverPod is one Pod and its process.
type moverPod struct {
	movers  *Movers
	pod     *corev1.Pod
	dir     string
	deleted chan struct{}
	once    sync.Once
	ended   error // read when the run is over

	mu     sync.Mutex
	places mounts // of the container once it has started
}

func (r *moverPod) markDeleted() { r.once.Do(func() { close(r.deleted) }) }

// runPod runs the container to its end, and reports the Pod's status as a kubelet does.
func (r *moverPod) runPod(ctx context.Context) {
	code, err := r.runContainer(ctx)
	if ctx.Err() != nil {
		return // the test is over
	}
	if r.ended = err; err == nil {
		r.ended = r.reportEnd(ctx, code)
	}
	select {
	case <-r.deleted:
		err := r.movers.client.CoreV1().Pods(r.pod.Namespace).Delete(ctx, r.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &r.pod.UID},
		})
		if !apierrors.IsNotFound(err) { // a Pod that has ended goes at once
			r.ended = errors.Join(r.ended, err)
		}
	case <-ctx.Done():
	}
}

// runContainer returns the exit code. An error means that the container was never started.
func (r *moverPod) runContainer(ctx context.Context) (code int, err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return 0, err
	}
	container := &r.pod.Spec.Containers[0]
	places, err := r.mountVolumes(ctx, container)
	if err != nil {
		return 0, err
	}
	if err := r.reportRunning(ctx); err != nil {
		return 0, err
	}
	if code := r.movers.waitHeld(ctx, r); code != 0 {
		return code, nil
	}
	r.mu.Lock()
	r.places = places
	r.mu.Unlock()
	command := append(slices.Clone(r.movers.wrapper), r.movers.binary)
	if len(r.movers.wrapper) > 0 {
		command = slices.Insert(command, len(r.movers.wrapper), filepath.Join(r.dir, messageFile))
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{
		Name: r.pod.Name, Path: command[0], Args: append(command[1:], places.replaceIn(commandWords(container))...),
		Env: append(slices.Clone(r.movers.env), places.replaceIn(environment(container))...), LogDir: r.dir,
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-process.Done():
	case <-r.deleted:
		process.Stop(stopGrace)
	case <-ctx.Done():
		process.Stop(stopGrace)
	}
	return exitCode(process.Err()), nil
}

// commandWords are what follows the name of the binary. A kubelet makes $ of $$.
func commandWords(c *corev1.Container) (words []string) {
	if len(c.Command) > 0 {
		words = append(words, c.Command[1:]...)
	}
	for _, arg := range c.Args {
		words = append(words, strings.ReplaceAll(arg, "$$", "$"))
	}
	return words
}

func environment(c *corev1.Container) (variables []string) {
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			variables = append(variables, v.Name+"="+v.Value)
		}
	}
	return variables
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	return terminated
}

func (r *moverPod) reportRunning(ctx context.Context) error {
	return r.reportStatus(ctx, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

func (r *moverPod) reportEnd(ctx context.Context, code int) error {
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	message, err := os.ReadFile(filepath.Join(r.dir, messageFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return r.reportStatus(ctx, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: string(message[:min(len(message), messageBytes)]), FinishedAt: metav1.Now(),
	}})
}

func (r *moverPod) reportStatus(ctx context.Context, phase corev1.PodPhase, state corev1.ContainerState) error {
	pod := r.pod.DeepCopy()
	pod.ResourceVersion = "" // others write the Pod too
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, ImageID: "none", State: state, Ready: state.Running != nil,
	}}
	_, err := r.movers.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("report mover Pod %s as %s: %w", pod.Name, phase, err)
	}
	return nil
}
