package testbed_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestControlPlane(t *testing.T) {
	cluster := testbed.StartT(t)
	t.Cleanup(func() { checkStopped(t, cluster) })
	config := cluster.RestConfig()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	t.Run("garbage collector follows owners", func(t *testing.T) {
		owner, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
		require.NoError(t, err)
		owned := configMap("owned")
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), owned, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, client.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "owned", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, time.Minute, 100*time.Millisecond)
	})

	t.Run("namespaces get a service account and go away", func(t *testing.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "transient"}}
		_, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := client.CoreV1().ServiceAccounts("transient").Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		}, time.Minute, 100*time.Millisecond)
		require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "transient", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			_, err := client.CoreV1().Namespaces().Get(t.Context(), "transient", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, time.Minute, 100*time.Millisecond)
	})

	t.Run("another user has only the rights that RBAC gives", func(t *testing.T) {
		path, err := cluster.KubeconfigFor("nobody", "visitors")
		require.NoError(t, err)
		config, err := clientcmd.BuildConfigFromFlags("", path)
		require.NoError(t, err)
		visitor, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = visitor.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "got %v", err)
	})
	closeIdle(t, client)
}

func TestDetachedClusterIsStoppedByItsDirectory(t *testing.T) {
	config := testbed.Config{Dir: filepath.Join(t.TempDir(), "cluster"), Detach: true}
	cluster, err := testbed.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	_, err = testbed.Start(t.Context(), config)
	require.ErrorIs(t, err, testbed.ErrRunning)
	require.NoError(t, testbed.StopDetached(config.Dir))
	checkStopped(t, cluster)
	require.NoDirExists(t, config.Dir)
	require.NoError(t, testbed.StopDetached(config.Dir), "nothing is there any more")
}

func TestMissingBinaryIsNamed(t *testing.T) {
	t.Setenv(testbed.AssetsVariable, t.TempDir())
	_, err := testbed.Binary("no-such-server")
	require.ErrorIs(t, err, testbed.ErrMissingBinary)
	require.ErrorContains(t, err, "no-such-server")
	require.ErrorContains(t, err, "make tools")
}

func TestFailingAPIServerIsReported(t *testing.T) {
	_, err := testbed.Start(t.Context(), testbed.Config{
		Dir: filepath.Join(t.TempDir(), "cluster"), APIServerArgs: []string{"--no-such-flag"},
	})
	require.ErrorContains(t, err, "kube-apiserver ended early")
	require.ErrorContains(t, err, "no-such-flag", "the error shows the end of the log")
}

func TestConfigIsChecked(t *testing.T) {
	_, err := testbed.Start(t.Context(), testbed.Config{})
	require.ErrorContains(t, err, "Dir")
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
