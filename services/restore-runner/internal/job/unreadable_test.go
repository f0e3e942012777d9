package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestAnUnreadableClaimEndsTheRestore(t *testing.T) {
	for name, phase := range map[string]velerov1.RestorePhase{"new": "", "in progress": velerov1.RestorePhaseInProgress} {
		for _, value := range []string{"no JSON", `{"holder":"x","epoch":0}`} {
			t.Run(name+" "+value, func(t *testing.T) {
				b := newBench(t)
				b.storeTarball(t, 1)
				b.createRestore(t, true, func(r *velerov1.Restore) {
					r.Status.Phase = phase
					r.Annotations = map[string]string{holdfast.AnnotationClaim: value}
				})
				c := newControl(b)
				c.reconcileRestore(t)
				require.Len(t, c.bus.Sent(), 1, "it is looked at")
				require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
				r := b.getRestore(t)
				require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
				require.Contains(t, r.Status.FailureReason, holdfast.AnnotationClaim)
				require.NotNil(t, r.Status.CompletionTimestamp)
				require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailed}, b.ended)
				require.Empty(t, b.cluster.Requests("POST "))
			})
		}
	}
}

func TestADeletedRestoreWithADamagedClaimIsCleaned(t *testing.T) {
	b := newBench(t)
	restore := b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Finalizers = []string{velerov1.RestoreFinalizer}
		r.Status.Phase = velerov1.RestorePhaseInProgress
		r.Annotations = map[string]string{holdfast.AnnotationClaim: "no JSON"}
	})
	require.NoError(t, b.client.Delete(t.Context(), restore))
	c := newControl(b)
	require.Less(t, c.reconcileRestore(t).RequeueAfter, time.Second)
	require.Equal(t, []string{"r"}, c.cleaner.cleaned)
}
