package control

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// annotationBound on a PersistentVolume says that its claim was not chosen by a user.
const annotationBound = "pv.kubernetes.io/bound-by-controller"

// bindInterval is the time between two checks of a volume that is handed over to its claim.
const bindInterval = time.Second

// keepVolume sets the reclaim policy Retain on the volume, which has all content, and notes the volume in the request: a
// successor goes on with it when the mover and its claim are gone. From then on a cancel comes too late. The message of
// the request says by then what is missing besides content, if anything is.
func (c *Controller) keepVolume(ctx context.Context, v view) error {
	target, err := c.readTarget(ctx, v)
	if err == nil {
		err = checkTarget(v, target)
	}
	if err != nil {
		return c.settleError(ctx, v, err)
	}
	claim, err := c.findOwnClaim(ctx, v)
	switch {
	case err != nil:
		return err
	case claim == nil || claim.Spec.VolumeName == "":
		return c.failRequest(ctx, v, "the claim of the mover Pod was deleted")
	}
	pv := &corev1.PersistentVolume{}
	pv.Name = claim.Spec.VolumeName
	err = kube.Update(ctx, c.Reader, c.Client, pv, func(fresh *corev1.PersistentVolume) error {
		if !isBoundTo(fresh, claim) {
			return &moverpod.RefusalError{Reason: fmt.Sprintf("PersistentVolume %s is not bound to the claim of the mover Pod any more", fresh.Name)}
		}
		if fresh.Labels == nil {
			fresh.Labels = map[string]string{}
		}
		fresh.Labels[velerov1.LabelDynamicPV] = selectorOf(target)
		fresh.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		fresh.Spec.AccessModes = target.Spec.AccessModes
		return nil
	})
	if err == nil {
		err = kube.Update(ctx, c.Reader, c.Client, v.Object, func(fresh client.Object) error {
			if r, ok := fresh.(*v2alpha1.DataDownload); ok {
				r.Spec.TargetVolume.PV = pv.Name
			}
			return nil
		})
	}
	return c.settleError(ctx, v, err)
}

func isBoundTo(pv *corev1.PersistentVolume, claim client.Object) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.GetNamespace() && ref.Name == claim.GetName()
}

// bindVolume takes the next step by which a volume with all content goes over from the claim of the mover Pod to the target
// claim.
func (c *Controller) bindVolume(ctx context.Context, v view, pod *corev1.Pod) (time.Duration, error) {
	pv := &corev1.PersistentVolume{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: v.filled}, pv)
	if err == nil {
		err = c.handOverVolume(ctx, v, pod, pv)
	}
	return bindInterval, c.settleError(ctx, v, err)
}

func (c *Controller) handOverVolume(ctx context.Context, v view, pod *corev1.Pod, pv *corev1.PersistentVolume) error {
	target, err := c.readTarget(ctx, v)
	switch {
	case err != nil:
		return err
	case target == nil || target.Spec.VolumeName != pv.Name || target.DeletionTimestamp != nil:
		if err := checkTarget(v, target); err != nil {
			return err
		}
	}
	if pv.Labels[velerov1.LabelDynamicPV] != selectorOf(target) {
		return &moverpod.RefusalError{Reason: fmt.Sprintf("PersistentVolume %s is not for claim %s", pv.Name, v.claim)}
	}
	if left, err := c.removeFiller(ctx, v, pod); left || err != nil {
		return err
	}
	switch {
	case !isBoundTo(pv, target):
		return kube.Update(ctx, c.Reader, c.Client, pv, func(fresh *corev1.PersistentVolume) error {
			fresh.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: target.Namespace, Name: target.Name}
			delete(fresh.Annotations, annotationBound)
			return nil
		})
	case target.Spec.VolumeName == "":
		return kube.Update(ctx, c.Reader, c.Client, target, func(fresh *corev1.PersistentVolumeClaim) error {
			if fresh.Spec.VolumeName == pv.Name { // the cluster's volume controller was first
				return kube.ErrSkip
			}
			if err := checkTarget(v, fresh); err != nil {
				return err
			}
			fresh.Spec.VolumeName = pv.Name
			return nil
		})
	case target.Status.Phase != corev1.ClaimBound || pv.Status.Phase != corev1.VolumeBound:
		return nil
	}
	if err := c.restorePolicy(ctx, pv); err != nil {
		return err
	}
	if *v.message != "" {
		return c.endRequest(ctx, v, velerov1.PodVolumePhaseFailed, "the claim has its content, but: "+*v.message, func(f view) {
			if r, ok := f.Object.(*v2alpha1.DataDownload); ok {
				r.Spec.TargetVolume.PV = "" // the volume is the claim's, and must not be removed with the failed request
			}
		})
	}
	return c.endRequest(ctx, v, velerov1.PodVolumePhaseCompleted, "", func(view) {})
}

// removeFiller removes the mover Pod of a DataDownload and its claim, and reports whether one of them is left.
func (c *Controller) removeFiller(ctx context.Context, v view, pod *corev1.Pod) (left bool, err error) {
	if pod != nil {
		if err := c.deletePod(ctx, pod); err != nil {
			return true, err
		}
	}
	claim, err := c.findOwnClaim(ctx, v)
	if err != nil || claim == nil {
		return pod != nil, err
	}
	return true, c.deleteClaim(ctx, claim)
}

// restorePolicy gives a volume the reclaim policy of its class.
func (c *Controller) restorePolicy(ctx context.Context, pv *corev1.PersistentVolume) error {
	class := &storagev1.StorageClass{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: pv.Spec.StorageClassName}, class); err != nil {
		return client.IgnoreNotFound(err)
	}
	return kube.Update(ctx, c.Reader, c.Client, pv, func(fresh *corev1.PersistentVolume) error {
		fresh.Spec.PersistentVolumeReclaimPolicy = ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		return nil
	})
}
