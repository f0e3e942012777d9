package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// uploaderKopia is the only uploader that is supported.
const uploaderKopia velerov1.UploaderType = "kopia"

// waitContainer is the init container that keeps a restored Pod from starting.
const waitContainer = "restore-wait"

// acceptRequest accepts a new request once there is a slot on its node.
func (c *Controller) acceptRequest(ctx context.Context, v view) (time.Duration, error) {
	switch {
	case v.cancel:
		return 0, c.endRequest(ctx, v, velerov1.PodVolumePhaseCanceled, strings.TrimSuffix("canceled before it began: "+*v.message, ": "), func(view) {})
	case v.uploader != uploaderKopia:
		return 0, c.failRequest(ctx, v, "uploader type %q is not supported, only %q is", v.uploader, uploaderKopia)
	case v.kind != kindBackup && c.slots.hasToWait(v.requestKey()): // without reading its Pod or snapshot
		return waitInterval, c.noteWait(ctx, v, queuedMessage)
	}
	place, err := c.findPlace(ctx, v)
	switch {
	case err != nil:
		return 0, c.settleError(ctx, v, err)
	case !place.ready:
		return waitInterval, c.noteWait(ctx, v, place.why)
	case !c.slots.takeSlot(v, place.node):
		return waitInterval, c.noteWait(ctx, v, queuedMessage)
	}
	accepted := false
	err = kube.Update(ctx, c.Reader, c.Client, v.Object, func(fresh client.Object) error {
		f := viewOf(fresh)
		if accepted = f.isNew() && !f.cancel; !accepted {
			return kube.ErrSkip
		}
		now := metav1.NewTime(c.Clock.Now())
		*f.phase, *f.message, *f.accepted = velerov1.PodVolumePhaseAccepted, "", &now
		if r, ok := fresh.(*velerov1.PodVolumeRestore); ok {
			r.Status.Node = place.node
		}
		return nil
	})
	if err != nil || !accepted {
		c.releaseSlot(v)
		return waitInterval, err
	}
	c.Metrics.countAccepted(v)
	return 0, nil // the change comes back by the watch
}

// queuedMessage is that of a new request which waits for a slot.
const queuedMessage = "waits for one of the movers that --movers-per-node and --movers allow"

// noteWait says why a request is not accepted yet. A new request without a message is one that no
// controller has seen: the backup gives it up in time.
func (c *Controller) noteWait(ctx context.Context, v view, why string) error {
	if *v.message == why {
		return nil
	}
	return kube.Update(ctx, c.Reader, c.Client, v.Object, func(fresh client.Object) error {
		f := viewOf(fresh)
		if !f.isNew() {
			return kube.ErrSkip
		}
		*f.message = why
		return nil
	})
}

// placement is where the mover of a request can run.
type placement struct {
	// ready reports that it can now; else why says for what the request waits.
	ready bool
	why   string
	// node is empty for any.
	node string
}

// findPlace returns where the mover of a request can run.
func (c *Controller) findPlace(ctx context.Context, v view) (placement, error) {
	switch r := v.Object.(type) {
	case *velerov1.PodVolumeBackup:
		if r.Spec.Node == "" {
			return placement{}, &moverpod.RefusalError{Reason: "spec.node is required"}
		}
		return placement{ready: true, node: r.Spec.Node}, nil
	case *velerov1.PodVolumeRestore:
		return c.findWaitingPod(ctx, v)
	case *v2alpha1.DataUpload:
		return c.findReadySnapshot(ctx, r)
	}
	return c.findTarget(ctx, v)
}

// findWaitingPod returns the node of the Pod that waits for the data of a restore, or that runs where single files are
// restored. The placement is not ready until that Pod waits, or runs.
func (c *Controller) findWaitingPod(ctx context.Context, v view) (placement, error) {
	pod, err := c.findPod(ctx, v)
	if err != nil {
		return placement{}, err
	}
	if paths, err := podvolume.PathsOf(v.settings); err != nil || len(paths) > 0 { // into a volume in use
		return placement{ready: pod.Status.Phase == corev1.PodRunning, node: pod.Spec.NodeName, why: "the Pod does not run"}, nil
	}
	isWait := func(name string) bool { return name == waitContainer }
	if !slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return isWait(i.Name) }) {
		return placement{}, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s has no init container %s that waits for the data", pod.Namespace, pod.Name, waitContainer)}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if isWait(s.Name) && s.State.Running != nil {
			return placement{ready: true, node: pod.Spec.NodeName}, nil
		}
	}
	return placement{why: explainWait(pod)}, nil
}

// explainWait returns why the init container of a restored Pod does not run.
func explainWait(pod *corev1.Pod) string {
	for _, s := range pod.Status.InitContainerStatuses {
		if w := s.State.Waiting; w != nil && s.Name == waitContainer {
			return strings.TrimSuffix("the Pod's init container "+waitContainer+" does not run: "+w.Reason+": "+w.Message, ": ")
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "the Pod is not scheduled: " + c.Message
		}
	}
	return ""
}

// findPod returns the Pod whose volume it is. One that has ended is returned with an error, for its volumes are gone.
func (c *Controller) findPod(ctx context.Context, v view) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: v.pod.Namespace, Name: v.pod.Name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s is gone", v.pod.Namespace, v.pod.Name)}
	case err != nil:
		return nil, fmt.Errorf("read Pod %s/%s: %w", v.pod.Namespace, v.pod.Name, err)
	case v.pod.UID != "" && v.pod.UID != pod.UID:
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s is another one than that of the request", pod.Namespace, pod.Name)}
	case hasEnded(pod):
		return pod, &moverpod.RefusalError{Reason: fmt.Sprintf("Pod %s/%s has ended", pod.Namespace, pod.Name)}
	}
	return pod, nil
}
