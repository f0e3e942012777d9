package podhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errGone is why no hook of a Pod can run any more.
var errGone = errors.New("the pod cannot run it")

// livePod is a Pod as it is now.
type livePod struct{ corev1.Pod }

// readPod reads a Pod. One that will never run a hook again is errGone.
func (r *Runner) readPod(ctx context.Context, p *hookedPod) (*livePod, error) {
	raw, err := r.Existing.Client.Get(ctx, r.Names.Target(p.Node))
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: it was deleted", errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("look at the pod: %w", err)
	}
	l := &livePod{}
	if err := json.Unmarshal(raw, &l.Pod); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	switch {
	case l.UID != p.UID:
		err = fmt.Errorf("%w: it was deleted, and there is another of its name", errGone)
	case l.DeletionTimestamp != nil:
		err = fmt.Errorf("%w: it is being deleted", errGone)
	case l.Status.Phase == corev1.PodSucceeded, l.Status.Phase == corev1.PodFailed:
		err = fmt.Errorf("%w: it has ended: %s", errGone, joinTexts(string(l.Status.Phase), l.Status.Reason, l.Status.Message))
	}
	return l, err
}

// joinTexts joins the texts that are not empty.
func joinTexts(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

func (l *livePod) hasContainer(container string) bool {
	return slices.ContainsFunc(l.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
}

// lacksReason is why a hook in a container never can run.
func (l *livePod) lacksReason(container string) string {
	if l.hasContainer(container) {
		return l.endedReason(container)
	}
	names := make([]string, len(l.Spec.Containers))
	for i := range l.Spec.Containers {
		names[i] = l.Spec.Containers[i].Name
	}
	return fmt.Sprintf("the pod has no container %q, it has %s", container, strings.Join(names, ", "))
}

// containerStatus returns what is known of a container; nil is nothing.
func (l *livePod) containerStatus(container string) *corev1.ContainerStatus {
	for i := range l.Status.ContainerStatuses {
		if s := &l.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

// endedReason is how a container ended that is not started again; "" for any other.
func (l *livePod) endedReason(container string) string {
	s := l.containerStatus(container)
	if s == nil || s.State.Terminated == nil {
		return ""
	}
	t := s.State.Terminated
	policy := l.Spec.RestartPolicy
	if policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && t.ExitCode == 0 {
		return joinTexts(fmt.Sprintf("the container has ended with exit code %d", t.ExitCode), t.Reason, t.Message)
	}
	return ""
}

// waitingReason is what a container waits for until hooks can run in it; "" when they can.
func (l *livePod) waitingReason(container string, ready bool) string {
	s := l.containerStatus(container)
	switch {
	case s == nil:
		return l.unscheduledReason()
	case s.State.Running != nil && (s.Ready || !ready):
		return ""
	case s.State.Running != nil:
		return "it runs and is not ready"
	case s.State.Terminated != nil:
		return joinTexts(fmt.Sprintf("it has ended with exit code %d", s.State.Terminated.ExitCode), s.State.Terminated.Reason, s.State.Terminated.Message)
	case s.State.Waiting != nil:
		return joinTexts("it waits", s.State.Waiting.Reason, s.State.Waiting.Message)
	}
	return l.unscheduledReason()
}

// unscheduledReason is what is known of a Pod whose containers have no status.
func (l *livePod) unscheduledReason() string {
	for _, c := range l.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return joinTexts("the pod is not scheduled", c.Reason, c.Message)
		}
	}
	return joinTexts("nothing is known of it, the pod's phase", string(l.Status.Phase))
}
