package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// separateInformers gives each controller informers of its own: the fake ones have no lock.
type separateInformers struct{ informertest.FakeInformers }

func (*separateInformers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return controllertest.NewFakeInformer(controllertest.Synced), nil
}

// serve runs the controller until the test or stop ends it. Its cache reports nothing.
func (b *bed) serve() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.controller.Run(ctx, &separateInformers{informertest.FakeInformers{Scheme: kube.Scheme()}})
	}()
	return func() {
		cancel()
		require.NoError(b.t, <-ended)
	}
}

// TestASuccessorCountsTheMoversThatRun: limits hold from its first decision on.
func TestASuccessorCountsTheMoversThatRun(t *testing.T) {
	running, restoring, waiting, old := newBackup("b-1", "scratch"), newRestore("r-1", "data"), newBackup("b-2", "scratch"), newBackup("b-0", "data")
	running.Status.Phase = velerov1.PodVolumePhaseInProgress
	restoring.Status.Phase, restoring.Status.Node = velerov1.PodVolumePhaseAccepted, "node-1"
	old.Status.Phase = velerov1.PodVolumePhaseCompleted
	b := newBed(t, running, restoring, waiting, old)
	for _, c := range []struct {
		limit int
		phase velerov1.PodVolumePhase
	}{{2, ""}, {3, velerov1.PodVolumePhaseAccepted}} {
		b.configure(func(config *control.Config) { config.PerNode = c.limit })
		stop := b.serve()
		require.Eventually(t, func() bool { return b.secret("velero-repo-credentials") != nil }, time.Minute, time.Millisecond)
		stop()
		b.step(waiting)
		require.Equal(t, c.phase, waiting.Status.Phase)
		require.NoError(t, b.client.Delete(t.Context(), b.secret("velero-repo-credentials")))
	}
	require.Empty(t, b.events)
}

func TestAPasswordThatEverybodyKnowsIsToldOf(t *testing.T) {
	b := newBed(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "velero-repo-credentials"}, Data: map[string][]byte{"repository-password": []byte("static-passw0rd\n")},
	})
	stop := b.serve()
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.events) > 0 }, time.Minute, time.Millisecond)
	stop()
	require.Equal(t, []string{"KnownPassword"}, b.events)
}

// TestAFreeSlotIsTakenAtOnce: the request that has waited longest goes on when a mover ends.
func TestAFreeSlotIsTakenAtOnce(t *testing.T) {
	first, second, third := newBackup("b-1", "scratch"), newBackup("b-2", "scratch"), newBackup("b-3", "scratch")
	b := newBed(t, first, second, third)
	b.configure(func(c *control.Config) { c.PerNode = 1 })
	stop := b.serve()
	defer stop()
	for _, r := range []*velerov1.PodVolumeBackup{first, second, third} {
		b.step(r)
	}
	for _, next := range []*velerov1.PodVolumeBackup{second, third} {
		require.Empty(t, next.Status.Phase)
		b.end(first.Name, outcome.Result{Phase: outcome.Completed, SnapshotID: "s"})
		b.step(first)
		require.Eventually(t, func() bool {
			require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(next), next))
			return next.Status.Phase == velerov1.PodVolumePhaseAccepted
		}, time.Minute, time.Millisecond)
		b.step(next)
		first = next
	}
}
