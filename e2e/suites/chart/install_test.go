package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// chartPlace is a cluster that the chart is installed on. It has no nodes: Pods are created and never
// run.
type chartPlace struct {
	cluster *testbed.Cluster
	client  client.Client
}

func (p *chartPlace) runHelm(t *testing.T, namespace string, args ...string) {
	t.Helper()
	dir, err := chart.Dir()
	require.NoError(t, err)
	if args[0] != "uninstall" {
		args = append([]string{args[0], chart.Release, dir}, args[1:]...)
	}
	_, err = chart.Helm(t.Context(), t.TempDir(), append(args, "--kubeconfig", p.cluster.Kubeconfig(), "--namespace", namespace)...)
	require.NoError(t, err)
}

// createRestricted makes a namespace that refuses Pods which are not restricted.
func (p *chartPlace) createRestricted(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
	require.NoError(t, p.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
}

// awaitPods waits until controllers have created a Pod of every service, and NATS's.
func (p *chartPlace) awaitPods(t *testing.T, namespace string) {
	t.Helper()
	want := append([]string{"nats"}, fleet.Services...)
	have := map[string]bool{}
	require.Eventually(t, func() bool {
		list := &corev1.PodList{}
		if p.client.List(t.Context(), list, client.InNamespace(namespace)) != nil {
			return false
		}
		for i := range list.Items {
			have[list.Items[i].Labels[component]] = true
		}
		return !slices.ContainsFunc(want, func(name string) bool { return !have[name] })
	}, site.Patience, site.Look, "Pods of %v in %s", want, namespace)
}

func TestInstall(t *testing.T) {
	p := &chartPlace{cluster: testbed.StartT(t)}
	var err error
	p.client, err = client.New(p.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	p.createRestricted(t, namespace)
	p.createRestricted(t, "other")
	p.runJobs(t)

	p.runHelm(t, namespace, "install", "--values", "testdata/velero-aws.yaml")
	p.awaitPods(t, namespace)
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &velerov1.BackupStorageLocation{}))
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: chart.Release + "-nightly"}, &velerov1.Schedule{}))
	t.Run("the API server takes what is rendered", p.takesVariants)
	t.Run("a second release in the cluster", func(t *testing.T) {
		p.runHelm(t, "other", "install", "--set", "callerRoles.create=false")
		p.awaitPods(t, "other")
		p.runHelm(t, "other", "uninstall", chart.Release)
	})
	t.Run("an upgrade keeps the token of NATS", p.keepsToken)
	t.Run("an upgrade keeps the certificates", p.keepsCertificates)
	t.Run("an upgrade adds to older definitions", p.addsToDefinitions)
	t.Run("what is uninstalled leaves the definitions and the data", p.requireNothingLeft)
}

func (p *chartPlace) takesVariants(t *testing.T) {
	p.createRestricted(t, "dry")
	taken := map[string]bool{} // what variants have in common is tried once
	for name, args := range variants {
		objects, err := chart.Render(t.Context(), t.TempDir(), "dry", args...)
		require.NoError(t, err)
		for _, object := range objects {
			if object.GetNamespace() == "" && strings.HasPrefix(object.GetName(), chart.Release+"-") {
				continue // a role of callers, which the installed release has
			}
			body, err := object.MarshalJSON()
			require.NoError(t, err)
			if taken[string(body)] {
				continue
			}
			taken[string(body)] = true
			require.NoError(t, p.client.Create(t.Context(), object, client.DryRunAll), "%s: %s %s", name, object.GetKind(), object.GetName())
		}
	}
}

func (p *chartPlace) keepsToken(t *testing.T) {
	token := func() string {
		secret := &corev1.Secret{}
		require.NoError(t, p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: chart.Release + "-nats"}, secret))
		require.Contains(t, string(secret.Data["url"]), string(secret.Data["token"]))
		return string(secret.Data["token"])
	}
	before := token()
	require.Len(t, before, 41)
	p.runHelm(t, namespace, "upgrade", "--values", "testdata/velero-aws.yaml", "--set", "backupRunner.replicas=2")
	require.Equal(t, before, token())
}

func (p *chartPlace) requireNothingLeft(t *testing.T) {
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stays"}}
	require.NoError(t, p.client.Create(t.Context(), backup))
	theirs, others := p.madeByServices(t)
	p.runHelm(t, namespace, "uninstall", chart.Release)
	p.requireGone(t, theirs)
	for _, object := range others {
		require.NoError(t, p.client.Get(t.Context(), client.ObjectKeyFromObject(object), object), object.GetName())
	}
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKeyFromObject(backup), backup))
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ServiceAccount"}, {Group: "batch", Version: "v1", Kind: "Job"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		selector := client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"}
		require.NoError(t, p.client.List(t.Context(), list, selector))
		require.Empty(t, list.Items, kind.Kind)
	}
	err := p.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &velerov1.BackupStorageLocation{})
	require.True(t, apierrors.IsNotFound(err), "locations of the chart go with it: %v", err)
}
