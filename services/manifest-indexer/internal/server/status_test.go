package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestAnswersOnceAndDeletesLater(t *testing.T) {
	key := client.ObjectKey{Namespace: "velero", Name: "ssr"}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&velerov1.ServerStatusRequest{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}).Build()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	plugins := []velerov1.PluginInfo{{Name: "velero.io/pod", Kind: "BackupItemAction"}}
	r := &StatusReconciler{Reader: c, Client: c, Clock: clock, Plugins: func() []velerov1.PluginInfo { return plugins }}
	do := func() reconcile.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		return result
	}
	require.Equal(t, lifetime, do().RequeueAfter)
	var got velerov1.ServerStatusRequest
	require.NoError(t, c.Get(t.Context(), key, &got))
	require.Equal(t, velerov1.ServerStatusRequestPhaseProcessed, got.Status.Phase)
	require.Equal(t, plugins, got.Status.Plugins)
	require.True(t, clock.Now().Equal(got.Status.ProcessedTimestamp.Time))
	v, err := version.ParseSemantic(got.Status.ServerVersion)
	require.NoError(t, err)
	require.EqualValues(t, 1, v.Major())
	require.EqualValues(t, 18, v.Minor())

	answered := got.ResourceVersion
	clock.Step(lifetime - time.Second)
	require.Equal(t, time.Second, do().RequeueAfter)
	require.NoError(t, c.Get(t.Context(), key, &got))
	require.Equal(t, answered, got.ResourceVersion, "written once")
	clock.Step(time.Second)
	require.Zero(t, do())
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, &got)))
	require.Zero(t, do(), "a request that is gone is no error")
}
