package queue

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// createRestore creates a restore of everything in a backup.
func (b *bed) createRestore(t *testing.T, name, backup string, annotations map[string]string) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name, Annotations: annotations}, Spec: velerov1.RestoreSpec{BackupName: backup},
	}))
}

// requireRestored requires a restore that completes.
func (b *bed) requireRestored(t *testing.T, name string) {
	t.Helper()
	r := b.RestoreEnds(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, "%s: %s", name, r.Status.FailureReason)
}

// awaitNoted waits until the namespaces a restore writes to are known.
func (b *bed) awaitNoted(t *testing.T, name string, want ...string) {
	t.Helper()
	r := &velerov1.Restore{}
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, r) == nil && r.Annotations[holdfast.AnnotationNamespaces] != ""
	}, site.Patience, site.Look)
	var got []string
	require.NoError(t, json.Unmarshal([]byte(r.Annotations[holdfast.AnnotationNamespaces]), &got))
	require.Equal(t, want, got)
}

// runCLI runs a command of the product.
func (b *bed) runCLI(t *testing.T, args ...string) {
	t.Helper()
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	cli := &product.CLI{Binary: binary, Kubeconfig: b.Cluster.Kubeconfig(), Namespace: site.Server, Output: t.Output()}
	_, err = cli.Run(t.Context(), args...)
	require.NoError(t, err)
}
