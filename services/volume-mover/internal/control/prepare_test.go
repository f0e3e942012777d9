package control_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// asAgentMakes is a BackupRepository as Velero's node-agent makes it, which waits for it to be Ready.
func asAgentMakes(r *velerov1.BackupRepository) { r.Status.Phase = "" }

// Velero's node-agent makes BackupRepositories and leaves it to the server to create the repositories: without that each of its
// requests fails after ten minutes.
func TestARepositoryIsCreatedForTheNodeAgent(t *testing.T) {
	b, tried := newBed(t, newRepository("shop", asAgentMakes)), map[types.UID]time.Time{}
	b.stamps = true
	look := func() { require.NoError(t, b.controller.PrepareNew(t.Context(), tried)) }
	look()
	pods := b.maintainers()
	require.Len(t, pods, 1)
	args := pods[0].Spec.Containers[0].Args
	require.Equal(t, "maintain", args[0])
	require.Subset(t, args, []string{"--namespace", "shop", "--mode", "create"})
	require.Equal(t, types.UID("repository-uid"), pods[0].OwnerReferences[0].UID)
	require.Equal(t, "Pod", b.secret(pods[0].Name).OwnerReferences[0].Kind)
	b.restart()
	look()
	b.run(pods[0].Name)
	look()
	require.Empty(t, b.repository("shop").Status.Phase)
	b.end(pods[0].Name, outcome.Result{Phase: outcome.Completed})
	look()
	require.Equal(t, velerov1.BackupRepositoryPhaseReady, b.repository("shop").Status.Phase)
	require.Equal(t, time.Hour, b.repository("shop").Spec.MaintenanceFrequency.Duration)
	b.requireNoMover(pods[0].Name)
	look()
	require.Empty(t, b.maintainers(), "it stays Ready")
}

func TestARepositoryThatCannotBeCreatedIsTriedAgain(t *testing.T) {
	b, tried := newBed(t, newRepository("shop", asAgentMakes)), map[types.UID]time.Time{}
	b.stamps = true
	look := func(after time.Duration) {
		b.clock.Step(after)
		require.NoError(t, b.controller.PrepareNew(t.Context(), tried))
	}
	look(0)
	b.end(b.maintainers()[0].Name, outcome.Result{Phase: outcome.Failed, Message: "the bucket is away"})
	look(0)
	require.Equal(t, velerov1.BackupRepositoryStatus{Phase: velerov1.BackupRepositoryPhaseNotReady, Message: "the bucket is away"}, b.repository("shop").Status)
	look(5*time.Minute - time.Second)
	require.Empty(t, b.maintainers())
	look(time.Second)
	require.Len(t, b.maintainers(), 1)
	b.end(b.maintainers()[0].Name, outcome.Result{Phase: outcome.Completed})
	look(0)
	require.Equal(t, velerov1.BackupRepositoryStatus{Phase: velerov1.BackupRepositoryPhaseReady}, b.repository("shop").Status)
}

func TestWhichRepositoriesAreCreated(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*velerov1.BackupRepository)
		noImage bool
		mode    velerov1.BackupStorageLocationAccessMode
		movers  int
		phase   velerov1.BackupRepositoryPhase
	}{
		"new":                     {change: asAgentMakes, movers: 1},
		"ready":                   {change: func(*velerov1.BackupRepository) {}, phase: velerov1.BackupRepositoryPhaseReady},
		"of restic":               {change: func(r *velerov1.BackupRepository) { r.Status.Phase, r.Spec.RepositoryType = "", "restic" }},
		"of a read-only location": {change: asAgentMakes, mode: velerov1.LocationModeReadOnly, phase: velerov1.BackupRepositoryPhaseReady},
		"without an image":        {change: asAgentMakes, noImage: true, phase: velerov1.BackupRepositoryPhaseNotReady},
		"of no location": {change: func(r *velerov1.BackupRepository) { r.Status.Phase, r.Spec.BackupStorageLocation = "", "none" },
			phase: velerov1.BackupRepositoryPhaseNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, newRepository("shop", tc.change))
			if tc.noImage {
				b.configure(func(c *control.Config) { c.Movers.Image = "" })
			}
			loc := &velerov1.BackupStorageLocation{}
			require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "default"}, loc))
			b.update(loc, func() { loc.Spec.AccessMode = tc.mode })
			require.NoError(t, b.controller.PrepareNew(t.Context(), map[types.UID]time.Time{}))
			pods := &corev1.PodList{}
			require.NoError(t, b.client.List(t.Context(), pods, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueMaintain}))
			require.Len(t, pods.Items, tc.movers)
			require.Equal(t, tc.phase, b.repository("shop").Status.Phase)
		})
	}
}
