package moverpods

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// annotationNode names the node that the volume of a claim is made for.
const annotationNode = "volume.kubernetes.io/selected-node"

// schedulePod has a Pod run here, as a scheduler does: claims whose volumes wait for their first consumer get the node, and the Pod
// does once its claims are bound. A Pod that may not run here gets none.
func (m *Movers) schedulePod(ctx context.Context, pod *corev1.Pod) {
	_ = wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) { // fails with the test alone
		there, err := m.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (there.UID != pod.UID || there.DeletionTimestamp != nil) {
			return true, nil
		}
		if err != nil || !m.mayRunHere(ctx, pod) || !m.provideClaims(ctx, pod) {
			return false, nil
		}
		err = m.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: m.node.Name()},
		}, metav1.CreateOptions{})
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err), nil
	})
}

// mayRunHere reports whether a Pod selects no other node, by labels or by a required affinity.
func (m *Movers) mayRunHere(ctx context.Context, pod *corev1.Pod) bool {
	node, err := m.client.CoreV1().Nodes().Get(ctx, m.node.Name(), metav1.GetOptions{})
	return err == nil && selectsNode(&pod.Spec, node)
}

func selectsNode(spec *corev1.PodSpec, node *corev1.Node) bool {
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return matchesAll(t.MatchExpressions, node.Labels) && matchesAll(t.MatchFields, labels.Set{metav1.ObjectNameField: node.Name})
	})
}

// matchesAll reports whether a node with these labels or fields is what a term of a Pod's affinity asks for.
func matchesAll(term []corev1.NodeSelectorRequirement, of labels.Set) bool {
	return !slices.ContainsFunc(term, func(r corev1.NodeSelectorRequirement) bool {
		requirement, err := labels.NewRequirement(r.Key, selection.Operator(strings.ToLower(string(r.Operator))), r.Values)
		return err != nil || !requirement.Matches(of)
	})
}

// provideClaims reports whether all claims of a Pod are bound, and has those that wait for their first consumer be provisioned.
func (m *Movers) provideClaims(ctx context.Context, pod *corev1.Pod) bool {
	bound := true
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, err := m.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, source.ClaimName, metav1.GetOptions{})
		if err == nil && claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		if bound = false; err == nil {
			m.selectNode(ctx, claim)
		}
	}
	return bound
}

// selectNode writes the node on a claim whose class waits for a consumer.
func (m *Movers) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.StorageClassName == nil || claim.Annotations[annotationNode] != "" {
		return
	}
	class, err := m.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotationNode, m.node.Name())
	_, _ = m.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}) // tried again
}
