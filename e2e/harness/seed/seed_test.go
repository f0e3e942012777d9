package seed_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestEstate(t *testing.T) {
	cluster := testbed.StartT(t)
	options := seed.Options{Log: t.Output()}
	created, err := seed.Apply(t.Context(), cluster.RestConfig(), options)
	require.NoError(t, err)
	require.GreaterOrEqual(t, created, 300)
	require.Len(t, options.Namespaces(), 4)
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	require.NoError(t, err)
	shop := options.Namespaces()[0]

	t.Run("edges of what the API server accepts", func(t *testing.T) {
		big, err := client.CoreV1().ConfigMaps(shop).Get(t.Context(), "nearly-one-megabyte", metav1.GetOptions{})
		require.NoError(t, err)
		require.Greater(t, len(big.Data["blob"]), 950_000)
		require.Equal(t, 253, longestChain(t, client, shop))
		roles, err := client.RbacV1().Roles(shop).List(t.Context(), metav1.ListOptions{LabelSelector: seed.Selector()})
		require.NoError(t, err)
		require.Contains(t, roles.Items[0].Name+roles.Items[1].Name, "!\"#$&'()*+,-.0123456789:;<=>?@ABC")
	})
	t.Run("the same content every time", func(t *testing.T) {
		secret, err := client.CoreV1().Secrets(shop).Get(t.Context(), "secret-000", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "cc67f57b3e4d8907", fmt.Sprintf("%x", sha256.Sum256(secret.Data["key.bin"]))[:16])
		require.Contains(t, secret.Data, "empty")
	})
	t.Run("controllers have done their part", func(t *testing.T) {
		pods, err := client.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, pods.Items, 4, "two of one Deployment, one of the other, one of the StatefulSet")
		claims, err := client.CoreV1().PersistentVolumeClaims(shop).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, claims.Items, 3)
		for _, claim := range claims.Items {
			require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		}
	})
	t.Run("is not mixed with what is there", func(t *testing.T) {
		_, err := seed.Apply(t.Context(), cluster.RestConfig(), options)
		require.ErrorContains(t, err, "already exists")
	})
	t.Run("bulk", func(t *testing.T) {
		bulk := seed.BulkOptions{Namespace: "default", Count: 150, Size: 2048}
		require.NoError(t, seed.Bulk(t.Context(), cluster.RestConfig(), bulk))
		bulk.Secrets = true
		require.NoError(t, seed.Bulk(t.Context(), cluster.RestConfig(), bulk))
		secrets, err := client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{LabelSelector: seed.Selector()})
		require.NoError(t, err)
		require.Len(t, secrets.Items, 150)
		require.Len(t, secrets.Items[0].Data["data"], 2048)
		require.ErrorContains(t, seed.Bulk(t.Context(), cluster.RestConfig(), bulk), "already exists")
	})
	t.Run("is removed completely", func(t *testing.T) {
		removed, err := seed.Remove(t.Context(), cluster.RestConfig())
		require.NoError(t, err)
		require.Greater(t, removed, 20)
		found, err := seed.Present(t.Context(), cluster.RestConfig())
		require.NoError(t, err)
		require.False(t, found)
		_, err = client.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
	})
}

func longestChain(t *testing.T, client kubernetes.Interface, namespace string) int {
	t.Helper()
	maps, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	longest := 0
	for _, item := range maps.Items {
		longest = max(longest, len(item.Name))
	}
	return longest
}
