package control

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// retryPatience is how long after the creation of a Pod the kubelet may try again what failed: a registry or
// API server refuses a call now and then.
const retryPatience = 3 * time.Minute

// fatalWaits are the reasons for which a container waits that end its mover, and how long after its creation.
var fatalWaits = map[string]time.Duration{
	"ImagePullBackOff": retryPatience, "CreateContainerConfigError": retryPatience, "ErrImageNeverPull": 0, "InvalidImageName": 0,
}

// awaitMover waits for a mover Pod to run.
func (c *Controller) awaitMover(ctx context.Context, v view, pod *corev1.Pod) (time.Duration, error) {
	reason, patience := c.waitReason(pod)
	if patience <= 0 {
		return 0, c.failRequest(ctx, v, "the mover Pod cannot start: %s", reason)
	}
	left := c.prepareTime(v)
	if !v.isPreparing() { // it takes the place of one that ran
		left = c.PrepareTimeout - c.Clock.Since(pod.CreationTimestamp.Time)
	}
	if left > 0 {
		return min(left, patience), nil
	}
	if reason == "" {
		reason = "node " + pod.Spec.NodeName + " has not begun"
	}
	if directory := directoryOf(pod); directory != "" {
		reason += "; its volume is expected at " + directory + " (--kubelet-root)"
	}
	if v.isOfClaim() {
		reason += fmt.Sprintf("; the events of Pod and claim %s/%s may say more", v.GetNamespace(), v.GetName())
	}
	return 0, c.failRequest(ctx, v, "the mover Pod did not start in %s: %s", c.PrepareTimeout, reason)
}

// waitReason returns why a mover Pod is not scheduled or its container waits, and how long it may go on for that
// reason.
func (c *Controller) waitReason(pod *corev1.Pod) (reason string, patience time.Duration) {
	patience = math.MaxInt64
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			reason = "it is not scheduled: " + condition.Message
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			reason = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
			if limit, fatal := fatalWaits[w.Reason]; fatal {
				patience = min(patience, limit-c.Clock.Since(pod.CreationTimestamp.Time))
			}
		}
	}
	return reason, patience
}

// isRejected reports whether the node had no room for a mover Pod, which then never began.
func isRejected(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && strings.HasPrefix(pod.Status.Reason, "OutOf") && len(pod.Status.ContainerStatuses) == 0
}

// minSignalCode is the least exit code of a container that a signal ended.
const minSignalCode = 128

// endedTransiently reports whether the mover of a claim ended for a reason that another mover need not have: it got
// SIGTERM, or its node ended it. A mover that was killed for an unknown reason counts while the request has time left
// to start another one. The snapshot is as it was, and an upload goes on from its last checkpoint; a download writes
// everything again.
func (c *Controller) endedTransiently(v view, pod *corev1.Pod) bool {
	if !v.isOfClaim() || !hasEnded(pod) {
		return false
	}
	result, _ := readTermination(pod)
	t := terminationOf(pod)
	switch {
	case result != nil:
		return result.Phase == outcome.Canceled
	case pod.Status.Reason != "":
		return true
	}
	return t != nil && t.ExitCode >= minSignalCode && t.Reason != "OOMKilled" && c.prepareTime(v) > retryInterval
}

// replaceMover removes a mover Pod that its node rejected or ended, so that another one is made. The request
// fails if no mover began in its time to start.
func (c *Controller) replaceMover(ctx context.Context, v view, pod *corev1.Pod) (time.Duration, error) {
	if isRejected(pod) && c.prepareTime(v) <= retryInterval {
		return 0, c.failRequest(ctx, v, "node %s had no room for the mover Pod in %s: %s: %s", pod.Spec.NodeName, c.PrepareTimeout, pod.Status.Reason, pod.Status.Message)
	}
	created := pod.CreationTimestamp.Time
	if left := retryInterval - c.Clock.Since(created); left > 0 {
		return left, nil
	}
	return 0, c.deletePod(ctx, pod) // its end comes back by the watch
}

// directoryOf is the directory of the node that a mover Pod mounts.
func directoryOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}
