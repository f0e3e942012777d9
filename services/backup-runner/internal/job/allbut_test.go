package job

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A backup of all namespaces is admitted as all but those with the exclude label, and collects what
// is in every other one.
func TestABackupOfAllNamespacesButSome(t *testing.T) {
	w := newWorld(t)
	w.api.Add("namespaces", kubetest.Object{Name: "left"}, kubetest.Object{Name: "new"})
	w.api.Add("configmaps", kubetest.Object{Namespace: "left", Name: "out"}, kubetest.Object{Namespace: "new", Name: "in"})
	b := w.admitBackup(t, "b1")
	l := ledger.New(w.client, w.client, namespace)
	e, _, err := l.Get(t.Context(), b.UID)
	require.NoError(t, err)
	require.NoError(t, l.Withdraw(t.Context(), e))
	e.Namespaces = ledger.AllBut([]string{"left"})
	require.NoError(t, jobtest.Admit(t.Context(), l, e, ledger.Limits{}))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	list := w.readDocument(t, layout.BackupResourceList("b1"))
	require.Contains(t, list, "new/in")
	require.Contains(t, list, "a/cm-00")
	require.NotContains(t, list, "left")
}
