package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// storeGVK is the kind of the operator's custom resource.
var storeGVK = schema.GroupVersionKind{Group: "operator.test", Version: "v1", Kind: "Store"}

// podPatience bounds the wait for the StatefulSet controller.
const podPatience = testbed.Patience

// Operator creates, for each Store, what it does not find: a Secret without owner, a Secret it adds
// its owner reference to, a Secret that two Stores own, a claim it controls, and a StatefulSet with
// a claim template. Safe for concurrent use.
type Operator struct {
	client client.Client

	mu         sync.Mutex
	live       bool
	reconciled map[types.UID]bool
	created    []string
}

// NewOperator returns an operator that is stopped.
func NewOperator(c client.Client) *Operator {
	return &Operator{client: c, reconciled: map[types.UID]bool{}}
}

// Start makes Settle reconcile; a started operator has no state of an earlier run.
func (o *Operator) Start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live, o.reconciled, o.created = true, map[types.UID]bool{}, nil
}

// Stop makes Settle do nothing.
func (o *Operator) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live = false
}

// Created returns what the operator made since Start, as "namespace/name".
func (o *Operator) Created() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.created...)
}

// Settle returns when every Store in the cluster has been reconciled and the StatefulSet controller
// has acted on its StatefulSet.
func (o *Operator) Settle(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.live {
		return nil
	}
	stores := &unstructured.UnstructuredList{}
	stores.SetGroupVersionKind(storeGVK.GroupVersion().WithKind("StoreList"))
	if err := o.client.List(ctx, stores); err != nil {
		return fmt.Errorf("list the stores: %w", err)
	}
	for i := range stores.Items {
		store := &stores.Items[i]
		if o.reconciled[store.GetUID()] || store.GetDeletionTimestamp() != nil {
			continue
		}
		if err := o.reconcileStore(ctx, store); err != nil {
			return fmt.Errorf("reconcile the store %s/%s: %w", store.GetNamespace(), store.GetName(), err)
		}
		o.reconciled[store.GetUID()] = true
	}
	return nil
}

func (o *Operator) reconcileStore(ctx context.Context, store *unstructured.Unstructured) error {
	name := store.GetName()
	for _, object := range []client.Object{
		newSecret(store, name+"-admin"), newSecret(store, name+"-shared"), newSecret(store, name+"-tls", ownerReference(store, false)), newClaim(store), statefulSet(store),
	} {
		err := o.client.Create(ctx, object)
		switch {
		case err == nil:
			o.created = append(o.created, object.GetNamespace()+"/"+object.GetName())
		case !apierrors.IsAlreadyExists(err):
			return err
		}
	}
	if err := o.adoptObject(ctx, store, name+"-tls"); err != nil {
		return err
	}
	return o.podOf(ctx, store)
}

// adoptObject adds references to the Store and to a ConfigMap that every namespace has, as operators do
// with what they find.
func (o *Operator) adoptObject(ctx context.Context, store *unstructured.Unstructured, name string) error {
	root := &corev1.ConfigMap{}
	if err := retryUntil(ctx, podPatience, func() error {
		return o.client.Get(ctx, client.ObjectKey{Namespace: store.GetNamespace(), Name: "kube-root-ca.crt"}, root)
	}); err != nil {
		return err
	}
	return retryUntil(ctx, podPatience, func() error {
		tls := &corev1.Secret{}
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: store.GetNamespace(), Name: name}, tls); err != nil {
			return err
		}
		refs := tls.OwnerReferences
		for _, want := range []metav1.OwnerReference{ownerReference(store, false), {APIVersion: "v1", Kind: "ConfigMap", Name: root.Name, UID: root.UID}} {
			if !isOwned(refs, want.UID) {
				refs = append(refs, want)
			}
		}
		if len(refs) == len(tls.OwnerReferences) {
			return nil
		}
		tls.OwnerReferences = refs
		return o.client.Update(ctx, tls)
	})
}

// podOf waits until the StatefulSet of a Store has its Pod: its controller has looked for the claim
// by then, and made one if there was none.
func (o *Operator) podOf(ctx context.Context, store *unstructured.Unstructured) error {
	return retryUntil(ctx, podPatience, func() error {
		pod := &corev1.Pod{}
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: store.GetNamespace(), Name: store.GetName() + "-0"}, pod); err != nil {
			return err
		}
		if metav1.GetControllerOf(pod) == nil {
			return errors.New("the pod has no controller yet")
		}
		return nil
	})
}

// retryUntil repeats do until it succeeds.
func retryUntil(ctx context.Context, patience time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func isOwned(refs []metav1.OwnerReference, uid types.UID) bool {
	for _, ref := range refs {
		if ref.UID == uid {
			return true
		}
	}
	return false
}

// ownerReference is what the operator writes: it blocks the owner's deletion, which
// OwnerReferencesPermissionEnforcement asks a right for.
func ownerReference(store *unstructured.Unstructured, controller bool) metav1.OwnerReference {
	block := true
	return metav1.OwnerReference{
		APIVersion: storeGVK.GroupVersion().String(), Kind: storeGVK.Kind, Name: store.GetName(), UID: store.GetUID(),
		Controller: &controller, BlockOwnerDeletion: &block,
	}
}

func newSecret(store *unstructured.Unstructured, name string, owners ...metav1.OwnerReference) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: store.GetNamespace(), Name: name, OwnerReferences: owners},
		StringData: map[string]string{"password": rand.Text()},
	}
}

func newClaim(store *unstructured.Unstructured) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: store.GetNamespace(), Name: store.GetName() + "-data", OwnerReferences: []metav1.OwnerReference{ownerReference(store, true)},
		},
		Spec: claimSpec(),
	}
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	class := "" // nothing provisions it
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

func statefulSet(store *unstructured.Unstructured) *appsv1.StatefulSet {
	labels := map[string]string{"store": store.GetName()}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: store.GetNamespace(), Name: store.GetName(), OwnerReferences: []metav1.OwnerReference{ownerReference(store, true)},
		},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: store.GetName(), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "store", Image: "store"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "state"}, Spec: claimSpec()}},
		},
	}
}
