package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestLiveObjects(t *testing.T) {
	cluster := testbed.StartT(t)
	config := cluster.RestConfig()
	options := seed.Options{}
	created, err := seed.Apply(t.Context(), config, options)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	scope := compare.Scope{Namespaces: options.Namespaces(), Selector: seed.Selector()}
	before, err := compare.Take(t.Context(), config, scope)
	require.NoError(t, err)
	shop := options.Namespaces()[0]
	take := func(t *testing.T) compare.Report {
		t.Helper()
		after, err := compare.Take(t.Context(), config, scope)
		require.NoError(t, err)
		return compare.Diff(before, after)
	}

	t.Run("everything is read, little is excluded", func(t *testing.T) {
		require.GreaterOrEqual(t, len(before.Objects), created)
		count, percent := before.ExcludedCount()
		require.Positive(t, count)
		require.Less(t, percent, 5.0, "%v", before.Excluded)
		kinds := before.Kinds()
		for _, kind := range []string{
			"Deployment", "ReplicaSet", "Pod", "StatefulSet", "ControllerRevision", "Service", "Secret", "Role", "ClusterRole", "CustomResourceDefinition",
			"Climate", "Plant", "PersistentVolume", "PersistentVolumeClaim", "Namespace", "StorageClass",
		} {
			require.Positive(t, kinds[kind], kind)
		}
	})
	t.Run("nothing has changed", func(t *testing.T) {
		report := take(t)
		require.True(t, report.Same(), "%s", report)
		require.Equal(t, len(before.Objects), report.Equal)
		require.Greater(t, report.Owned, 50)
	})
	t.Run("one byte of one Secret is seen", func(t *testing.T) {
		secret, err := client.CoreV1().Secrets(shop).Get(t.Context(), "secret-007", metav1.GetOptions{})
		require.NoError(t, err)
		original := secret.DeepCopy()
		secret.Data["key.bin"][3] ^= 1
		updateSecret(t, client, secret)
		report := take(t)
		require.False(t, report.Same())
		require.Equal(t, []compare.Difference{{
			Key: compare.Key{Kind: "Secret", Namespace: shop, Name: "secret-007"}, Paths: []string{".data.key.bin"},
		}}, report.Different)
		require.Equal(t, len(before.Objects)-1, report.Equal)
		require.Contains(t, report.String(), "secret-007")
		original.ResourceVersion = ""
		updateSecret(t, client, original)
		require.True(t, take(t).Same(), "the byte is back")
	})
	t.Run("a lost and a new object are seen", func(t *testing.T) {
		require.NoError(t, client.CoreV1().ConfigMaps(shop).Delete(t.Context(), "config-001", metav1.DeleteOptions{}))
		stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}
		_, err := client.CoreV1().ConfigMaps(shop).Create(t.Context(), stranger, metav1.CreateOptions{})
		require.NoError(t, err)
		report, _, err := compare.DiffLive(t.Context(), config, scope, before, 0)
		require.NoError(t, err)
		require.Equal(t, []compare.Key{{Kind: "ConfigMap", Namespace: shop, Name: "config-001"}}, report.Missing)
		require.Equal(t, []compare.Key{{Kind: "ConfigMap", Namespace: shop, Name: "stranger"}}, report.Extra)
	})
}

func updateSecret(t *testing.T, client kubernetes.Interface, secret *corev1.Secret) {
	t.Helper()
	_, err := client.CoreV1().Secrets(secret.Namespace).Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
}
