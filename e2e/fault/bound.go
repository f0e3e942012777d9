package fault

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Namespaces with a claim, which is bound to a volume that has the namespace's name. Their restores map no namespace.
const (
	freed     = "fault-freed"
	givenBack = "fault-given-back"
)

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/" + name}},
		StorageClassName:       name,
	}}
}

// plantBound makes both namespaces.
func (a *apiClient) plantBound(ctx context.Context) error {
	for _, name := range []string{freed, givenBack} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := errors.Join(a.createObject(ctx, namespace), a.createObject(ctx, newVolume(name)), a.createObject(ctx, claim))
		if err == nil {
			err = a.awaitClaim(ctx, name, corev1.ClaimBound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *apiClient) awaitClaim(ctx context.Context, namespace string, phase corev1.PersistentVolumeClaimPhase) error {
	claim := &corev1.PersistentVolumeClaim{}
	return pollUntil(ctx, patience, fmt.Sprintf("the claim in %s is %s", namespace, phase), func() (bool, error) {
		err := a.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "data"}, claim)
		return claim.Status.Phase == phase, err
	})
}

// prepareFreed deletes the namespace, whose volume stays behind Released.
func prepareFreed(ctx context.Context, b *Bed, _ string) error {
	if err := removeNamespace(ctx, b, freed); err != nil {
		return err
	}
	return pollUntil(ctx, patience, "namespace "+freed+" is gone, and its volume Released", func() (bool, error) {
		volume := newVolume(freed)
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(volume), volume); err != nil || volume.Status.Phase != corev1.VolumeReleased {
			return false, err
		}
		err := b.client.Get(ctx, client.ObjectKey{Name: freed}, &corev1.Namespace{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// prepareLost deletes the volume, whose claim stays behind Lost.
func prepareLost(ctx context.Context, b *Bed, _ string) error {
	volume := newVolume(givenBack)
	if err := b.apiClient.removeObject(ctx, volume); err != nil {
		return err
	}
	err := b.client.Patch(ctx, volume, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return b.apiClient.awaitClaim(ctx, givenBack, corev1.ClaimLost)
}

// restoreBound restores one of the namespaces to itself.
func restoreBound(namespace string) begin {
	return restoreOf(namespace, func(s *velerov1.RestoreSpec) { s.NamespaceMapping = nil })
}

// observeBound sees that the claim gets its volume.
func observeBound(namespace string) observe {
	return observeMore(observeRestore, func(ctx context.Context, b *Bed, _ string, f Facts) error {
		f["claim"] = string(corev1.ClaimBound)
		return b.apiClient.awaitClaim(ctx, namespace, corev1.ClaimBound)
	})
}
