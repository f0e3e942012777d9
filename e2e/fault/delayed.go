package fault

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// delayed is a step that a restore comes to when something has to wait.
const delayed = "restore-runner/delayed"

// newWebhook judges ConfigMaps of one namespace, and nothing answers for it.
func newWebhook(namespace string) *admissionv1.ValidatingWebhookConfiguration {
	url, none := "https://127.0.0.1:1/judge", admissionv1.SideEffectClassNone
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "judge.fault.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: selectNamespace(namespace), Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}}}
}

// selectNamespace selects a namespace.
func selectNamespace(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

// prepareWebhook makes the namespace and a fail-closed webhook for it that does not answer.
func prepareWebhook(ctx context.Context, b *Bed, name string) error {
	if err := makeNamespace(ctx, b, name); err != nil {
		return err
	}
	if err := b.apiClient.createObject(ctx, newWebhook(name)); err != nil {
		return err
	}
	judged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "bulk-0"}}
	return pollUntil(ctx, patience, "the webhook is in force", func() (bool, error) {
		return apierrors.IsInternalError(b.client.Create(ctx, judged.DeepCopy(), client.DryRunAll)), nil
	})
}

// beginWebhook restores, and removes the webhook once the restore waits for it.
func beginWebhook(ctx context.Context, b *Bed, name string) error {
	if err := b.awaitPoint(ctx, delayed, func() error { return restoreOf(small)(ctx, b, name) }); err != nil {
		return err
	}
	return b.apiClient.removeObject(ctx, newWebhook(name))
}

// newRefusal is a policy that refuses Jobs without an owner in one namespace.
func newRefusal(namespace string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{NamespaceSelector: selectNamespace(namespace), ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{
				APIGroups: []string{batchv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"jobs"},
			}},
		}}},
		Validations: []admissionv1.Validation{{Expression: "has(object.metadata.ownerReferences) && size(object.metadata.ownerReferences) > 0"}},
	}}
	return policy, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
}

// prepareRefused makes the namespace and the policy.
func prepareRefused(ctx context.Context, b *Bed, name string) error {
	if err := makeNamespace(ctx, b, name); err != nil {
		return err
	}
	policy, binding := newRefusal(name)
	if err := b.apiClient.createObject(ctx, policy); err != nil {
		return err
	}
	if err := b.apiClient.createObject(ctx, binding); err != nil {
		return err
	}
	probe := &batchv1.Job{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: small, Name: "nightly-1"}, probe); err != nil {
		return err
	}
	probe = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "probe"}, Spec: batchv1.JobSpec{Suspend: new(true), Template: probe.Spec.Template}}
	probe.Spec.Template.Labels = nil
	return pollUntil(ctx, patience, "the policy is in force", func() (bool, error) {
		err := b.client.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return false, fmt.Errorf("try the policy: %w", err)
		}
		return err != nil, nil
	})
}

func tidyRefused(ctx context.Context, b *Bed, name string) error {
	policy, binding := newRefusal(name)
	if err := b.apiClient.removeObject(ctx, binding); err != nil {
		return err
	}
	if err := b.apiClient.removeObject(ctx, policy); err != nil {
		return err
	}
	return removeNamespace(ctx, b, name)
}

func tidyWebhook(ctx context.Context, b *Bed, name string) error {
	if err := b.apiClient.removeObject(ctx, newWebhook(name)); err != nil {
		return err
	}
	return removeNamespace(ctx, b, name)
}
