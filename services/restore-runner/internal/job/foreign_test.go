package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// createLeftRestore makes a Restore that another server left in a phase, with a file of its operations.
func (b *bench) createLeftRestore(t *testing.T, phase velerov1.RestorePhase, change ...func(*velerov1.Restore)) {
	t.Helper()
	change = append(change, func(r *velerov1.Restore) {
		at := metav1.NewTime(time.Now().Add(-time.Hour))
		r.Status = velerov1.RestoreStatus{
			Phase: phase, StartTimestamp: &at, Warnings: 2, Errors: 1, Progress: &velerov1.RestoreProgress{TotalItems: 7, ItemsRestored: 7},
		}
	})
	b.createRestore(t, false, change...)
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.RestoreItemOperations("r"), []byte("of Velero")))
}

// Every phase that another server may leave, and what a runner makes of it without a place in the
// ledger. What another server did was continued, or stayed for ever in its phase.
func TestARestoreThatAnotherServerLeftEnds(t *testing.T) {
	for phase, want := range map[velerov1.RestorePhase]velerov1.RestorePhase{
		"": "", velerov1.RestorePhaseNew: velerov1.RestorePhaseNew, // not admitted
		velerov1.RestorePhaseFailedValidation:                          velerov1.RestorePhaseFailedValidation,
		velerov1.RestorePhaseInProgress:                                velerov1.RestorePhaseFailed,
		velerov1.RestorePhaseWaitingForPluginOperations:                velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed: velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseFinalizing:                                velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseFinalizingPartiallyFailed:                 velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseCompleted:                                 velerov1.RestorePhaseCompleted,
		velerov1.RestorePhasePartiallyFailed:                           velerov1.RestorePhasePartiallyFailed,
		velerov1.RestorePhaseFailed:                                    velerov1.RestorePhaseFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBench(t)
			b.createLeftRestore(t, phase)
			keys := b.store.Keys()
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, want, r.Status.Phase)
			require.Equal(t, 7, r.Status.Progress.ItemsRestored)
			require.Equal(t, []int{2, 1}, []int{r.Status.Warnings, r.Status.Errors})
			require.Equal(t, keys, b.store.Keys())
			require.Empty(t, b.cluster.Requests("POST "))
			if want == phase {
				require.Empty(t, r.Status.FailureReason)
				return
			}
			require.Equal(t, mark.ForeignReason, r.Status.FailureReason)
			require.NotNil(t, r.Status.CompletionTimestamp)
			require.Equal(t, []velerov1.RestorePhase{want}, b.ended)
		})
	}
}

// The jobs of a live server are that server's.
func TestARestoreOfALiveServerIsLeftToIt(t *testing.T) {
	b := newBench(t)
	b.createLeftRestore(t, velerov1.RestorePhaseInProgress)
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero", Labels: map[string]string{"component": "velero"}}}
	server.Status.Replicas = 1
	require.NoError(t, b.client.Create(t.Context(), server))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	require.NoError(t, b.client.Delete(t.Context(), server))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
}

// Velero's backups have no manifest: the rules of users about references are applied when its tarball is read.
func TestRulesAboutReferencesCountForBackupsOfVelero(t *testing.T) {
	b := newBench(t)
	entries := []entry{
		{"namespaces", "v1", "Namespace", "", "a", nil, nil},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com", newDefinition("widgets", "Widget", "Namespaced"), nil},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.example.com", newDefinition("gadgets", "Gadget", "Namespaced"), nil},
		{"widgets.example.com", "example.com/v1", "Widget", "a", "w", nil, nil},
	}
	for i := range 50 {
		entries = append(entries, entry{"gadgets.example.com", "example.com/v1", "Gadget", "a", fmt.Sprintf("g%02d", i), object{"spec": object{"after": "w"}}, nil})
	}
	b.storeBackup(t, entries)
	require.NoError(t, b.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: reference.ConfigMap},
		Data:       map[string]string{"good": "{group: example.com, kind: Gadget, field: spec.after, to: Widget.example.com}", "bad": "{kind: Gadget}"},
	}))
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	created := b.cluster.Requests("POST /apis/example.com/")
	require.Len(t, created, 51)
	require.Contains(t, created[0], "widgets", "Gadgets wait for what they name")
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "ConfigMap holdfast-references: data[bad]: kind and field are required")
}
