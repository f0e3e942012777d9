package restore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// TestEndpointsOfServicesWithoutASelectorStay restores right after the deletion of the namespace, while the endpoints
// controller works that off: it removed a third of the Endpoints, whose Services it did not find.
func TestEndpointsOfServicesWithoutASelectorStay(t *testing.T) {
	const services, rounds, namespace = 200, 5, "legacy"
	b := startBench(t)
	backup := b.createBackup(t, "legacy")
	backup.addObject(t, corev1.SchemeGroupVersion.WithResource("namespaces"), newObject("v1", "Namespace", "", namespace, nil))
	for i := range services {
		name := fmt.Sprintf("db-%03d", i)
		backup.addObject(t, corev1.SchemeGroupVersion.WithResource("services"), newObject("v1", "Service", namespace, name,
			fields{"spec": fields{"ports": []any{fields{"name": "sql", "port": 5432}}}}))
		backup.addObject(t, corev1.SchemeGroupVersion.WithResource("endpoints"), newObject("v1", "Endpoints", namespace, name,
			fields{"subsets": []any{fields{"addresses": []any{fields{"ip": "192.0.2.10"}}, "ports": []any{fields{"name": "sql", "port": 5432}}}}}))
	}
	backup.closeTarball(t)
	for round := range rounds {
		name := fmt.Sprintf("round-%d", round)
		restore := b.runRestore(t, name, velerov1.RestoreSpec{BackupName: "legacy"})
		require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, messagesOf(t, b, restore))
		require.Zero(t, restore.Status.Warnings, messagesOf(t, b, restore))
		// What the controller had decided before it saw the Services is done after some seconds.
		require.Never(t, func() bool {
			list := &corev1.EndpointsList{}
			return b.client.List(t.Context(), list, client.InNamespace(namespace)) != nil || len(list.Items) != services
		}, 3*time.Second, 100*time.Millisecond, name)
		b.deleteNamespace(t, namespace)
	}
}

// deleteNamespace returns when a namespace is gone.
func (b *bench) deleteNamespace(t *testing.T, name string) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, b.client.Delete(t.Context(), space))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(b.client.Get(t.Context(), client.ObjectKeyFromObject(space), space))
	}, testbed.Patience, 10*time.Millisecond, "namespace %s goes", name)
}
