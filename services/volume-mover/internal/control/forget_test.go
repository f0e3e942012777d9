package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const patience, look = 10 * time.Second, 5 * time.Millisecond

// beginForget calls ForgetSnapshots; the clock goes on by itself.
func (b *bed) beginForget(ctx context.Context, ids ...string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- b.controller.ForgetSnapshots(ctx, control.Snapshots{Location: "default", Namespace: "shop", IDs: ids})
	}()
	return ended
}

// forgetPod waits for the mover Pod and its Secret.
func (b *bed) forgetPod() *corev1.Pod {
	b.t.Helper()
	pods := &corev1.PodList{}
	require.Eventually(b.t, func() bool {
		err := b.client.List(b.t.Context(), pods, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueForget})
		return err == nil && len(pods.Items) == 1 && b.secret(pods.Items[0].Name) != nil
	}, patience, look)
	return &pods.Items[0]
}

// awaitEnd returns how a call ended.
func (b *bed) awaitEnd(ended <-chan error) (err error) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.clock.Step(time.Second)
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	}, patience, look)
	return err
}

func TestSnapshotsAreForgottenByOneMover(t *testing.T) {
	b := newBed(t)
	first := b.beginForget(t.Context(), "a", "b")
	pod := b.forgetPod()
	require.Equal(t, "Pod", b.secret(pod.Name).OwnerReferences[0].Kind, "it goes with the Pod")
	require.Contains(t, string(b.secret(pod.Name).Data["location.yaml"]), "name: default")
	b.restart() // another process
	second := b.beginForget(t.Context(), "b", "a")
	require.NoError(t, b.client.Delete(t.Context(), b.secret(pod.Name)))
	b.clock.Step(time.Second)
	require.Eventually(t, func() bool { b.clock.Step(time.Second); return b.secret(pod.Name) != nil }, patience, look, "as after a kill before it was made")
	require.Equal(t, pod.UID, b.forgetPod().UID, "the second call has no mover of its own")
	b.end(pod.Name, outcome.Result{Phase: outcome.Completed})
	either := make(chan error, 2)
	for _, ended := range []<-chan error{first, second} {
		go func() { either <- <-ended }()
	}
	require.NoError(t, b.awaitEnd(either), "whichever does not see the end has another mover find nothing")
}

func TestAForgetThatFailsSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *bed) // before
		pod    func(b *bed, name string)
		want   string
	}{
		"the repository does not open": {
			pod: func(b *bed, name string) {
				b.end(name, outcome.Result{Phase: outcome.Failed, Message: "repository of namespace shop: wrong repository password"})
			},
			want: "repository of namespace shop: wrong repository password",
		},
		"killed": {
			pod: func(b *bed, name string) {
				b.terminate(name, corev1.PodFailed, corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137})
			},
			want: "ended without a result: OOMKilled",
		},
		"no image": {pod: func(b *bed, name string) { b.wait(name, "ImagePullBackOff") }, want: "cannot start: ImagePullBackOff"},
		"refused": {
			change: func(b *bed) {
				b.configure(func(c *control.Config) { c.Movers.Image = "" })
			},
			want: "--mover-image",
		},
		"a directory": {
			change: func(b *bed) {
				loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "default"}}
				b.update(loc, func() { loc.Spec.Provider = "holdfast.io/file" })
			},
			want: "no Pod can mount",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			if tc.change != nil {
				tc.change(b)
			}
			ended := b.beginForget(t.Context(), "a")
			if tc.pod != nil {
				tc.pod(b, b.forgetPod().Name)
			}
			err := b.awaitEnd(ended)
			require.ErrorIs(t, err, errgrpc.ErrPrecondition)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "namespace shop")
			pods := &corev1.PodList{}
			require.NoError(t, b.client.List(t.Context(), pods, client.HasLabels{moverpod.LabelMover}))
			require.Empty(t, pods.Items, "the next call begins anew")
		})
	}
}

// A mover Pod that a dead node leaves Terminating is replaced.
func TestALostNodeDoesNotEndAForget(t *testing.T) {
	b := newBed(t)
	ended := b.beginForget(t.Context(), "a")
	pod := b.forgetPod()
	b.run(pod.Name)
	b.loseNode(pod.Name)
	require.Eventually(t, func() bool {
		b.clock.Step(time.Second)
		p := b.mover(pod.Name)
		return p != nil && p.DeletionTimestamp == nil
	}, patience, look)
	b.end(pod.Name, outcome.Result{Phase: outcome.Completed})
	require.NoError(t, b.awaitEnd(ended))
}

// A mover that runs when its call ends goes on; one that no node has taken is removed.
func TestAForgetThatIsNotAwaited(t *testing.T) {
	for _, runs := range []bool{true, false} {
		b := newBed(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := b.beginForget(ctx, "a")
		pod := b.forgetPod()
		if runs {
			b.run(pod.Name)
		}
		cancel(errors.New("the caller is gone"))
		require.ErrorIs(t, b.awaitEnd(ended), errgrpc.ErrUnavailable)
		require.Equal(t, runs, b.mover(pod.Name) != nil)
	}
}
