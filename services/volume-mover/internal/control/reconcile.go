package control

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// Pauses between two looks at a request.
const (
	// waitInterval is that of one which waits for a slot or its Pod.
	waitInterval = 5 * time.Second
	// progressInterval is that of one whose mover runs.
	progressInterval = 10 * time.Second
	// retryInterval is that between two mover Pods for which their node has no room.
	retryInterval = 30 * time.Second
	// goneGrace is how long after its time a Pod that was deleted counts as running. A node that is gone
	// does not end its Pods.
	goneGrace = 5 * time.Minute
)

// Reconcile takes the next step of one request of a kind.
func (c *Controller) Reconcile(ctx context.Context, kind client.Object, name types.NamespacedName) (reconcile.Result, error) {
	object, ok := kind.DeepCopyObject().(client.Object)
	if !ok {
		return reconcile.Result{}, fmt.Errorf("%T is no object", kind)
	}
	v := viewOf(object)
	v.SetName(name.Name)
	err := c.Client.Get(ctx, name, object)
	switch {
	case apierrors.IsNotFound(err):
		c.releaseSlot(v)
		if v.kind == kindUpload {
			err = c.removeOrphan(ctx, name.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	case err != nil:
		return reconcile.Result{}, err
	}
	after, err := c.takeStep(ctx, viewOf(object))
	if apierrors.IsNotFound(err) || err != nil && ctx.Err() != nil { // the request was deleted, or another replica takes over
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// takeStep returns after which time the next step is due, if nothing happens before; 0 is never.
func (c *Controller) takeStep(ctx context.Context, v view) (time.Duration, error) {
	if v.foreign {
		return 0, nil
	}
	if v.isNew() && v.GetDeletionTimestamp() == nil {
		return c.acceptRequest(ctx, v)
	}
	if !v.isFinal() { // the cache may be late
		if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(v), v.Object); err != nil {
			return 0, err
		}
		v = viewOf(v.Object)
	}
	if v.isFinal() || v.GetDeletionTimestamp() != nil {
		c.releaseSlot(v)
		return c.removeMover(ctx, v)
	}
	c.slots.holdSlot(v.requestKey(), v.moverNode())
	pod, err := c.findMover(ctx, v)
	switch {
	case err != nil:
		return 0, err
	case pod != nil && !isMover(pod, v):
		return 0, c.failRequest(ctx, v, "Pod %s/%s exists and is not its mover; is Velero's node-agent running?", pod.Namespace, pod.Name)
	case v.filled != "":
		return c.bindVolume(ctx, v, pod)
	case pod != nil && (isRejected(pod) || c.endedTransiently(v, pod)) && !v.cancel:
		return c.replaceMover(ctx, v, pod)
	case pod != nil && (hasEnded(pod) || terminationOf(pod) != nil): // sidecars that were injected may run on
		return bindInterval, c.finishTransfer(ctx, v, pod)
	case v.cancel:
		return c.cancelTransfer(ctx, v, pod)
	case pod == nil && (v.isPreparing() || v.isOfClaim()):
		return c.startMover(ctx, v)
	case pod == nil:
		return 0, c.failRequest(ctx, v, "the mover Pod was deleted")
	case c.isPodLost(pod):
		return 0, c.failRequest(ctx, v, "the mover Pod was deleted, and its node %s does not say that it has ended", pod.Spec.NodeName)
	case pod.Status.Phase == corev1.PodRunning:
		return c.followMover(ctx, v, pod)
	}
	return c.awaitMover(ctx, v, pod)
}

// findMover returns the mover Pod; nil if there is none.
func (c *Controller) findMover(ctx context.Context, v view) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(v), pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no Pod is a normal answer
	case err != nil:
		return nil, fmt.Errorf("mover Pod %s: %w", v.GetName(), err)
	}
	return pod, nil
}

// isMover reports whether a Pod is the mover of a request. Those of Velero's node-agent have its name too.
func isMover(pod *corev1.Pod, v view) bool {
	return metav1.IsControlledBy(pod, v) && pod.Labels[moverpod.LabelMover] == v.mover
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isPodLost reports whether a Pod was deleted and has had more than its time to end.
func (c *Controller) isPodLost(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && c.Clock.Now().After(pod.DeletionTimestamp.Add(goneGrace))
}

// writeStatus changes a request that is not final, and reports whether it was. v is as it is then.
func (c *Controller) writeStatus(ctx context.Context, v view, change func(view)) (bool, error) {
	written := false
	err := kube.Update(ctx, c.Reader, c.Client, v.Object, func(fresh client.Object) error {
		f := viewOf(fresh)
		if written = !f.isFinal(); !written {
			return kube.ErrSkip
		}
		change(f)
		return nil
	})
	return written && err == nil, err
}

// endRequest writes how a request ended, and removes its mover. The Secret goes first: after the end of a
// request whose Pod is gone nobody looks for it.
func (c *Controller) endRequest(ctx context.Context, v view, phase velerov1.PodVolumePhase, message string, change func(view)) error {
	if err := c.removeSecret(ctx, v); err != nil {
		return err
	}
	now := metav1.NewTime(c.Clock.Now())
	written, err := c.writeStatus(ctx, v, func(f view) {
		*f.phase, *f.message, *f.completed = phase, message, &now
		if *f.started == nil {
			*f.started = &now
		}
		change(f)
	})
	if err != nil {
		return err
	}
	if written {
		c.Log.InfoContext(ctx, "Transfer of a volume ended", v.logArgs("phase", phase, "message", message)...)
		c.Metrics.countEnd(v, phase)
	}
	c.releaseSlot(v)
	_, err = c.removeMover(ctx, v) // the change of the request comes back by the watch
	return err
}

// failRequest ends a request as Failed.
func (c *Controller) failRequest(ctx context.Context, v view, format string, args ...any) error {
	return c.endRequest(ctx, v, velerov1.PodVolumePhaseFailed, fmt.Sprintf(format, args...), func(view) {})
}

// removeMover removes what was made for a request that has ended. It returns after which time to look again, while
// something is left; 0 is never.
func (c *Controller) removeMover(ctx context.Context, v view) (time.Duration, error) {
	pod := &corev1.Pod{}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(v), pod)
	if err == nil && isMover(pod, v) {
		if err = c.removeSecret(ctx, v); err == nil {
			err = c.deletePod(ctx, pod)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if r, ok := v.Object.(*v2alpha1.DataUpload); ok {
		return c.removeUpload(ctx, v, r)
	}
	if v.kind == kindDownload {
		return c.removeDownload(ctx, v)
	}
	return 0, nil
}

// deletePod deletes a Pod, unless that was done before.
func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	return client.IgnoreNotFound(c.Client.Delete(ctx, pod, client.Preconditions{UID: ptr.To(pod.UID)}))
}

// removeSecret removes the Secret of the mover Pod, and none of the same name that is another's.
func (c *Controller) removeSecret(ctx context.Context, v view) error {
	secret := &corev1.Secret{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(v), secret); err != nil || !metav1.IsControlledBy(secret, v) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Client.Delete(ctx, secret, client.Preconditions{UID: ptr.To(secret.UID)}))
}
