package fault

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// paused is a namespace with custom resources that a rule pauses, and what they own.
const paused = "fault-paused"

// pauseRule is for kites.
const pauseRule = "group: " + kindGroup + "\nkind: Kite\nfield: spec.paused\nvalue: true\n"

// plantPaused makes two owners, one of which was stored with its mark, and what they own.
func (a *apiClient) plantPaused(ctx context.Context) error {
	rules := &corev1.ConfigMap{ObjectMeta: namedMeta("holdfast-restore-pause"), Data: map[string]string{"kites": pauseRule}}
	if err := a.createObject(ctx, rules); err != nil {
		return err
	}
	if err := a.createDefinition(ctx, "kites", "Kite"); err != nil {
		return err
	}
	for name, spec := range map[string]map[string]any{"flies": {"length": int64(3)}, "rests": {"paused": false}} {
		kite := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		kite.SetAPIVersion(kindGroup + "/v1")
		kite.SetKind("Kite")
		kite.SetNamespace(paused)
		kite.SetName(name)
		if err := a.createServed(ctx, kite); err != nil {
			return err
		}
		owner := metav1.OwnerReference{APIVersion: kite.GetAPIVersion(), Kind: kite.GetKind(), Name: name, UID: kite.GetUID()}
		meta := metav1.ObjectMeta{Namespace: paused, Name: name + "-keys", OwnerReferences: []metav1.OwnerReference{owner}}
		if err := a.createObject(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": name}}); err != nil {
			return err
		}
	}
	return nil
}
