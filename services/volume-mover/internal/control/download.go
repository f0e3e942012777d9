package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// A DataDownload is served with a claim of its own, of its name in the server's namespace, which is like the target
// claim. The mover Pod fills the volume of that claim, and the target gets the volume, see bindVolume. If the request
// fails before it names the volume, its own claim and that volume are removed.

// annotationNode on a claim is the node that the scheduler chose for the Pod which uses it.
const annotationNode = "volume.kubernetes.io/selected-node"

// findTarget tells whether the mover of a DataDownload can run: the target claim has to be there, and to have a node
// where its class waits for one.
func (c *Controller) findTarget(ctx context.Context, v view) (placement, error) {
	target, err := c.readTarget(ctx, v)
	switch {
	case err != nil:
		return placement{}, err
	case target == nil && c.prepareTime(v) > 0: // Velero's server makes it after the request
		return placement{why: "waits for claim " + v.claim.String()}, nil
	}
	if err := checkTarget(v, target); err != nil {
		return placement{}, err
	}
	class := &storagev1.StorageClass{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: *target.Spec.StorageClassName}, class); err != nil {
		return placement{}, fmt.Errorf("claim %s: StorageClass: %w", v.claim, err)
	}
	if !waitsForConsumer(class) || target.Annotations[annotationNode] != "" {
		return placement{ready: true}, nil
	}
	why, err := c.awaitConsumer(ctx, v)
	return placement{ready: err == nil && why == "", why: why}, err
}

// waitsForConsumer reports whether a class makes volumes where the first Pod that uses them runs.
func waitsForConsumer(class *storagev1.StorageClass) bool {
	return ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}

// readTarget reads the claim that is filled; nil where there is none.
func (c *Controller) readTarget(ctx context.Context, v view) (*corev1.PersistentVolumeClaim, error) {
	target := &corev1.PersistentVolumeClaim{}
	err := c.Reader.Get(ctx, v.claim, target)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no claim is a normal answer
	case err != nil:
		return nil, fmt.Errorf("claim %s: %w", v.claim, err)
	}
	return target, nil
}

// checkTarget reports whether a claim can be filled.
func checkTarget(v view, target *corev1.PersistentVolumeClaim) error {
	var reason string
	switch {
	case target == nil:
		reason = "is gone"
	case target.DeletionTimestamp != nil:
		reason = "is being deleted"
	case target.Spec.VolumeName != "":
		reason = "has volume " + target.Spec.VolumeName + " already: nothing is written to it"
	case selectorOf(target) == "":
		reason = "has no selector " + velerov1.LabelDynamicPV + ", so that any volume may be bound to it"
	case ptr.Deref(target.Spec.StorageClassName, "") == "":
		reason = "has no StorageClass, which could provision a volume"
	default:
		return nil
	}
	return &moverpod.RefusalError{Reason: "claim " + v.claim.String() + " " + reason}
}

// selectorOf is the label that the volume of a target claim must have.
func selectorOf(target *corev1.PersistentVolumeClaim) string {
	if s := target.Spec.Selector; s != nil {
		return s.MatchLabels[velerov1.LabelDynamicPV]
	}
	return ""
}

// awaitConsumer returns why a claim, whose class waits for the first Pod that uses it, may yet get a node; empty where no
// Pod asks for one.
func (c *Controller) awaitConsumer(ctx context.Context, v view) (string, error) {
	if owner := metav1.GetControllerOf(v); owner != nil && owner.Kind == "Restore" {
		restore := &velerov1.Restore{}
		err := c.Reader.Get(ctx, client.ObjectKey{Namespace: v.GetNamespace(), Name: owner.Name}, restore)
		switch phase := restore.Status.Phase; {
		case client.IgnoreNotFound(err) != nil:
			return "", fmt.Errorf("Restore %s: %w", owner.Name, err)
		case err == nil && (phase == "" || phase == velerov1.RestorePhaseNew || phase == velerov1.RestorePhaseInProgress):
			return "waits until a Pod that uses the claim is scheduled, or the restore has made all Pods", nil
		}
	}
	users, err := c.findUsers(ctx, v)
	for i := range users {
		if users[i].Spec.NodeName == "" {
			return fmt.Sprintf("waits until Pod %s/%s, which uses the claim, is scheduled", users[i].Namespace, users[i].Name), nil
		}
	}
	return "", err
}

// findUsers returns the Pods that use the claim of a request.
func (c *Controller) findUsers(ctx context.Context, v view) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.Reader.List(ctx, &pods, client.InNamespace(v.claim.Namespace)); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		uses := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
			return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == v.claim.Name
		})
		return !uses || hasEnded(&pod) || pod.DeletionTimestamp != nil
	}), nil
}

// tolerationsOf are those of a Pod that uses a claim: the mover has to run where it does.
func tolerationsOf(users []corev1.Pod) []corev1.Toleration {
	if len(users) == 0 {
		return nil
	}
	return users[0].Spec.Tolerations
}

// planDownload makes the claim of a DataDownload and returns its mover Pod.
func (c *Controller) planDownload(ctx context.Context, v view, r *v2alpha1.DataDownload) (*corev1.Pod, error) {
	target, err := c.readTarget(ctx, v)
	if err == nil {
		err = checkTarget(v, target)
	}
	if err != nil {
		return nil, err
	}
	users, err := c.findUsers(ctx, v)
	if err != nil {
		return nil, err
	}
	about := metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, Labels: moverpod.BuildLabels(v.mover, r.Name), OwnerReferences: []metav1.OwnerReference{v.ownerReference()},
	}
	m := moverpod.Mover{
		Name: r.Name, Owners: about.OwnerReferences, Labels: about.Labels, Claim: r.Name,
		Block: ptr.Deref(target.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock,
		// Overwrite: the volume is new, and holds only what a mover wrote that was interrupted.
		Args:        append(moverpod.Restore{Namespace: v.namespace, Snapshot: r.Spec.SnapshotID, Overwrite: true}.BuildArgs(), v.parallelArgs(settingDownloads)...),
		Tolerations: tolerationsOf(users),
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: about, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: writableModes(target), Resources: target.Spec.Resources, StorageClassName: target.Spec.StorageClassName,
		VolumeMode: target.Spec.VolumeMode, VolumeAttributesClassName: target.Spec.VolumeAttributesClassName,
	}}
	claim.Annotations = maps.Clone(target.Annotations) // a provisioner may read some of them
	maps.DeleteFunc(claim.Annotations, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(domain, "kubernetes.io")
	})
	if err := c.createOwned(ctx, v, claim); err != nil {
		return nil, fmt.Errorf("create the claim of the mover Pod: %w", err)
	}
	if node := target.Annotations[annotationNode]; node != "" && claim.Spec.VolumeName == "" { // a volume that exists may be used elsewhere
		m.Nodes = moverpod.SelectNode(node)
	}
	return moverpod.BuildPod(c.Movers, m), nil
}

// writableModes are the access modes of a volume that can be filled for a claim.
func writableModes(target *corev1.PersistentVolumeClaim) []corev1.PersistentVolumeAccessMode {
	for _, mode := range target.Spec.AccessModes {
		if mode != corev1.ReadOnlyMany {
			return target.Spec.AccessModes
		}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}

// removeDownload removes the claim of a DataDownload that is final, with its volume. It returns after which time to look
// again, while the claim is left.
func (c *Controller) removeDownload(ctx context.Context, v view) (time.Duration, error) {
	if v.filled != "" && *v.phase != velerov1.PodVolumePhaseCompleted { // its claim may be gone
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.filled}}
		err := kube.Update(ctx, c.Reader, c.Client, pv, func(fresh *corev1.PersistentVolume) error {
			switch ref := fresh.Spec.ClaimRef; {
			case ref == nil:
			case ref.UID == "":
				ref.UID = v.GetUID() // of no claim: the volume is released
			case fresh.Status.Phase == corev1.VolumeBound && ref.Namespace == v.claim.Namespace && ref.Name == v.claim.Name:
				return kube.ErrSkip
			}
			fresh.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			return nil
		})
		if client.IgnoreNotFound(err) != nil {
			return 0, err
		}
	}
	claim, err := c.findOwnClaim(ctx, v)
	if err != nil || claim == nil {
		return 0, err
	}
	if err := c.releaseVolume(ctx, claim); err != nil {
		return 0, err
	}
	return time.Second, c.deleteClaim(ctx, claim)
}

// findOwnClaim reads the claim of a request; nil where there is none.
func (c *Controller) findOwnClaim(ctx context.Context, v view) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(v), claim)
	if err != nil || !metav1.IsControlledBy(claim, v) {
		return nil, client.IgnoreNotFound(err)
	}
	return claim, nil
}

func (c *Controller) deleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.DeletionTimestamp != nil { // its protection ends with the mover Pod
		return nil
	}
	return client.IgnoreNotFound(c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}))
}
