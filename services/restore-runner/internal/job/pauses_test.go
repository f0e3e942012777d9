package job_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

const gadgetPath = "/apis/example.com/v1/namespaces/a/gadgets/g"

// pauseGadgets adds a rule for Gadgets, whose operator lets them be paused.
func (b *bench) pauseGadgets(t *testing.T) {
	t.Helper()
	b.setPauseRules(t, map[string]string{"gadgets": "group: example.com\nkind: Gadget\nfield: spec.paused\nvalue: true\n"})
}

func (b *bench) setPauseRules(t *testing.T, data map[string]string) {
	t.Helper()
	require.NoError(t, b.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: plan.PauseConfigMap}, Data: data,
	}))
}

// atGadgetsSecret calls do before what the paused owner owns is created.
func (b *bench) atGadgetsSecret(do func()) {
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "gadget" {
			do()
		}
		return 0, false
	})
}

func (b *bench) readGadget() any { return b.cluster.Object(gadgetPath)["spec"] }

// The mark gets its value back at the end, and the paused object is created before those it owns.
func TestAPausedOwnerIsResumedAtTheEnd(t *testing.T) {
	b := newScene(t, "")
	var spec, refs any
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "gadget" {
			spec, refs = b.readGadget(), kubetest.Meta(body)["ownerReferences"]
		}
		return 0, false
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, object{"size": 1.0, "paused": true}, spec)
	require.Len(t, refs, 1)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
}

// An owner that a cancelled restore left paused would not be reconciled, without a message about
// it.
func TestACancelledRestoreResumesWhatItPaused(t *testing.T) {
	b := newScene(t, "")
	b.atGadgetsSecret(func() { b.requestCancel(t, true) })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	b.requireCancelled(t)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
}

// A restore that is deleted while it runs has no other holder.
func TestADeletedRestoreResumesWhatItPaused(t *testing.T) {
	b := newScene(t, "")
	b.atGadgetsSecret(func() { require.NoError(t, b.client.Delete(t.Context(), b.getRestore(t))) })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.NotNil(t, b.getRestore(t).DeletionTimestamp)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	require.Empty(t, mark.PausedLocation(b.getRestore(t)), "its files need not wait")
}

// orphanedPaused is a restore whose holder died with a paused owner in the cluster.
func orphanedPaused(t *testing.T) *bench {
	t.Helper()
	b := newScene(t, "")
	ctx, stop := context.WithCancel(t.Context())
	b.atGadgetsSecret(func() {
		stop()
		b.claims.LoseClaim() // without a word of what it did last
	})
	dying := b.config
	var leave func()
	dying.REST, leave = b.cluster.OpenFaultyDoor(nil)
	_ = newRunner(dying).Run(ctx, "r", "uid-r")
	leave() // what it still sent has no effect
	require.Equal(t, object{"size": 1.0, "paused": true}, b.readGadget())
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	b.cluster.Fail(nil)
	b.config.Claims = &jobtest.Holder{Name: "next"}
	return b
}

// The rules changed since: what was paused is known by the records.
func TestASuccessorResumesWhatADeadRunnerPaused(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *bench){
		"goes on":   func(*testing.T, *bench) {},
		"cancelled": func(t *testing.T, b *bench) { b.requestCancel(t, false) },
		"the backup cannot be read any more": func(t *testing.T, b *bench) {
			require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), []byte("hello")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := orphanedPaused(t)
			rules := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: plan.PauseConfigMap}}
			require.NoError(t, b.client.Delete(t.Context(), rules))
			prepare(t, b)
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			require.True(t, b.getRestore(t).Status.Phase.Terminal())
			require.Equal(t, object{"size": 1.0}, b.readGadget())
		})
	}
}

// Without durable records a death would leave an owner paused, and nothing would know how it was.
func TestNothingIsPausedWhereNothingCanBeRecorded(t *testing.T) {
	b := newScene(t, "")
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return objectstore.ErrReadOnly
		}
		return nil
	})
	paused := false
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "g" {
			paused = body["spec"].(object)["paused"] != nil
		}
		return 0, false
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.False(t, paused)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
}

// A rule that was passed over in silence would leave its operator unpaused.
func TestABadRuleIsAnErrorThatNamesItsKey(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 1)
	b.setPauseRules(t, map[string]string{"gadgets": "group: example.com\n"})
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "data[gadgets]: group and kind are required")
}
