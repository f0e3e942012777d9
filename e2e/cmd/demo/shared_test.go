package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestSomeoneElsesClusterIsLeftAlone(t *testing.T) {
	cluster := testbed.StartT(t)
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	namespaces := client.CoreV1().Namespaces()
	create := func(name string, labels map[string]string) {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	attempt := func(share bool) error {
		return runDemo(t.Context(), options{kubeconfig: cluster.Kubeconfig(), bin: t.TempDir(), share: share}, &bytes.Buffer{})
	}

	createDefinition(t, cluster)
	require.ErrorContains(t, attempt(false), "velero.io definitions")
	_, err = namespaces.Get(t.Context(), sharedNamespace, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "nothing was made")

	create(seed.Options{}.Namespaces()[2], nil)
	require.ErrorContains(t, attempt(true), seed.Options{}.Namespaces()[2])
	create("other", map[string]string{seed.Label: seed.LabelValue})
	require.ErrorContains(t, attempt(true), seed.Selector())

	for _, name := range []string{"other", seed.Options{}.Namespaces()[2]} {
		live, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Nil(t, live.DeletionTimestamp, "%s is not the demo's to delete", name)
	}
}

// createDefinition makes what a Velero installation leaves in a cluster.
func createDefinition(t *testing.T, cluster *testbed.Cluster) {
	t.Helper()
	client, err := clientset.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "backups.velero.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "velero.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Backup", ListKind: "BackupList", Plural: "backups", Singular: "backup"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{})
	require.NoError(t, err)
}
