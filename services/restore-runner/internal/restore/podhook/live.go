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
	"k8s.io/utils/ptr"
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

// liveContainer is a container of a Pod.
type liveContainer struct {
	name   string
	policy corev1.RestartPolicy
	status *corev1.ContainerStatus // nil is nothing known
}

// listContainers returns the containers that the API server takes for a command: the Pod's own first,
// then its init containers, which include sidecars, and its ephemeral ones.
func (l *livePod) listContainers() (all []liveContainer) {
	add := func(name string, policy corev1.RestartPolicy, states []corev1.ContainerStatus) {
		c := liveContainer{name: name, policy: policy}
		if i := slices.IndexFunc(states, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
			c.status = &states[i]
		}
		all = append(all, c)
	}
	for i := range l.Spec.Containers {
		c := &l.Spec.Containers[i]
		add(c.Name, corev1.RestartPolicy(ptr.Deref(c.RestartPolicy, corev1.ContainerRestartPolicy(l.Spec.RestartPolicy))), l.Status.ContainerStatuses)
	}
	untilDone := corev1.RestartPolicyOnFailure // an init container that succeeded is not started again
	if l.Spec.RestartPolicy == corev1.RestartPolicyNever {
		untilDone = corev1.RestartPolicyNever
	}
	for i := range l.Spec.InitContainers {
		c := &l.Spec.InitContainers[i]
		add(c.Name, corev1.RestartPolicy(ptr.Deref(c.RestartPolicy, corev1.ContainerRestartPolicy(untilDone))), l.Status.InitContainerStatuses)
	}
	for i := range l.Spec.EphemeralContainers {
		add(l.Spec.EphemeralContainers[i].Name, corev1.RestartPolicyNever, l.Status.EphemeralContainerStatuses)
	}
	return all
}

// findContainer returns a container of any kind; nil is none of that name.
func (l *livePod) findContainer(name string) *liveContainer {
	all := l.listContainers()
	if i := slices.IndexFunc(all, func(c liveContainer) bool { return c.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// lacksReason is why a hook in a container never can run: there is none, or it has ended and is not
// started again; "" for any other.
func (l *livePod) lacksReason(container string) string {
	c := l.findContainer(container)
	if c == nil {
		var names []string
		for _, other := range l.listContainers() {
			names = append(names, other.name)
		}
		return fmt.Sprintf("the pod has no container %q, it has %s", container, strings.Join(names, ", "))
	}
	if c.status == nil || c.status.State.Terminated == nil {
		return ""
	}
	t := c.status.State.Terminated
	if c.policy == corev1.RestartPolicyNever || c.policy == corev1.RestartPolicyOnFailure && t.ExitCode == 0 {
		return joinTexts(fmt.Sprintf("the container has ended with exit code %d", t.ExitCode), t.Reason, t.Message)
	}
	return ""
}

// waitingReason is what a container waits for until hooks can run in it; "" when they can.
func (l *livePod) waitingReason(container string, ready bool) string {
	c := l.findContainer(container)
	if c == nil || c.status == nil {
		return l.unscheduledReason()
	}
	s := c.status
	switch {
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
