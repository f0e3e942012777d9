package builtin_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func configMap(namespace, name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Data: map[string]string{"old": name},
	}
}

func TestReaderFindsConfigMapsAndClasses(t *testing.T) {
	mine := map[string]string{"velero.io/plugin-config": "", classAction: "RestoreItemAction"}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		configMap("velero", "mine", mine), configMap("other", "elsewhere", mine),
		configMap("velero", "no-config", map[string]string{classAction: "RestoreItemAction"}),
		configMap("velero", "another-kind", map[string]string{"velero.io/plugin-config": "", classAction: "BackupItemAction"}),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
	).Build()
	r := builtin.Reader{Client: c, Namespace: "velero"}
	got, err := byName(t, builtin.ForRestore(r), classAction).Execute(t.Context(), claimOfOld(), claimOfOld(), restoreJob(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"PersistentVolumeClaim","spec":{"storageClassName":"mine"}}`, jsonOf(t, got.Object))
	require.Empty(t, got.Additional)

	exists, err := r.StorageClassExists(t.Context(), "missing")
	require.NoError(t, err)
	require.False(t, exists)
}

func TestReaderReportsThatTheClusterDoesNotAnswer(t *testing.T) {
	away := errors.New("away")
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return away
		},
	}).Build()
	r := builtin.Reader{Client: c, Namespace: "velero"}
	_, err := r.Configs(t.Context(), "a=b")
	require.ErrorIs(t, err, away)
	_, err = r.Configs(t.Context(), "a=b=c")
	require.ErrorContains(t, err, "selector of ConfigMaps")
	_, err = r.StorageClassExists(t.Context(), "x")
	require.ErrorIs(t, err, away)
}
