package chart_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// The Job that runs after an uninstallation may remove what services make for themselves, and read
// what it waits for. It sees no Secret.
func TestTheJobAfterAnUninstallationMayOnlyRemoveWhatServicesMake(t *testing.T) {
	objects := renderChart(t)
	require.Equal(t, []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"list", "delete"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"holdfast-artifact-key"}},
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"holdfast-queue"}},
	}, roleRules(t, objects, ofService("cleanup")))
	require.NotNil(t, objectNamed(objects, "Role", chart.Release+"-cleanup"), "in the namespace alone")

	job := hookJob(t, objects, "cleanup")
	require.Equal(t, "post-delete", job.Annotations["helm.sh/hook"])
	require.Equal(t, "before-hook-creation,hook-succeeded", job.Annotations["helm.sh/hook-delete-policy"])
	args := job.Spec.Template.Spec.Containers[0].Args
	require.Equal(t, []string{"cleanup", "--namespace=" + namespace, "--timeout=270s"}, args)
	require.EqualValues(t, 300, *job.Spec.ActiveDeadlineSeconds)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...).CombinedOutput()
	require.NoError(t, err, string(out))

	without := renderChart(t, "--set", "cleanup.enabled=false")
	require.Nil(t, hookJob(t, without, "cleanup"))
	require.Nil(t, objectNamed(without, "Role", chart.Release+"-cleanup"))
}

// madeByServices creates what services make for themselves, and an object of each kind that is a user's.
func (p *chartPlace) madeByServices(t *testing.T) (theirs, others []client.Object) {
	t.Helper()
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	theirs = []client.Object{
		&coordinationv1.Lease{ // as an idle instance leaves it that lost its rights before it could release it
			ObjectMeta: meta("backup-runner-1", map[string]string{"holdfast.io/lease": "instance"}),
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("backup-runner-1"), LeaseDurationSeconds: ptr.To[int32](300), RenewTime: ptr.To(metav1.NowMicro()),
			},
		},
		&coordinationv1.Lease{ObjectMeta: meta("holdfast-duty-backup-runner", nil)},
		&corev1.ConfigMap{ObjectMeta: meta("holdfast-queue", nil)},
		&corev1.Secret{ObjectMeta: meta("holdfast-artifact-key", nil)},
	}
	others = []client.Object{
		&coordinationv1.Lease{ObjectMeta: meta("of-another", nil)}, &corev1.ConfigMap{ObjectMeta: meta("holdfast-settings", nil)},
		&corev1.Secret{ObjectMeta: meta("of-another", nil)},
	}
	for _, object := range slices.Concat(theirs, others) {
		require.NoError(t, p.client.Create(t.Context(), object))
	}
	return theirs, others
}

func (p *chartPlace) requireGone(t *testing.T, objects []client.Object) {
	t.Helper()
	for _, object := range objects {
		err := p.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		require.True(t, apierrors.IsNotFound(err), "%T %s: %v", object, object.GetName(), err)
	}
}
