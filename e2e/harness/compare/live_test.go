package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestOneChangedByteFailsTheComparison(t *testing.T) {
	cluster := testbed.StartT(t)
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	secrets := client.CoreV1().Secrets("default")
	secret, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"key": []byte("hunter2")}}, metav1.CreateOptions{})
	require.NoError(t, err)
	scope := compare.Scope{Namespaces: []string{"default"}}
	before, err := compare.Take(t.Context(), cluster.RestConfig(), scope)
	require.NoError(t, err)
	report, _, err := compare.DiffLive(t.Context(), cluster.RestConfig(), scope, before, 0)
	require.NoError(t, err)
	require.True(t, report.Same(), "%s", report)

	secret.Data["key"][6] = '3'
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	report, _, err = compare.DiffLive(t.Context(), cluster.RestConfig(), scope, before, 0)
	require.NoError(t, err)
	require.Equal(t, []compare.Difference{{Key: compare.Key{Kind: "Secret", Namespace: "default", Name: "s"}, Paths: []string{".data.key"}}}, report.Different)
	require.Len(t, before.Objects, report.Equal+1)
	require.NotContains(t, report.String(), "aHVudGVy", "no content of a Secret is printed")
}
