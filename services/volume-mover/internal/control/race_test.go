package control_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
)

// readOld returns a client whose next read of a request is of an older state.
func (b *bed) readOld(old *velerov1.PodVolumeBackup) client.Client {
	inner, ok := b.client.(client.WithWatch)
	require.True(b.t, ok)
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if r, ok := into.(*velerov1.PodVolumeBackup); ok && old != nil && key.Name == old.Name {
				old.DeepCopyInto(r)
				old = nil
				return nil
			}
			return w.Get(ctx, key, into, opts...)
		},
	})
}

// TestARequestThatEndedStaysSo when what was read of it is old: its cache is late, or another replica ended it.
func TestARequestThatEndedStaysSo(t *testing.T) {
	for name, phase := range map[string]velerov1.PodVolumePhase{"late cache": "", "another replica": velerov1.PodVolumePhaseInProgress} {
		t.Run(name, func(t *testing.T) {
			r, next := newBackup("b-1", "scratch"), newBackup("b-2", "scratch")
			b := newBed(t, r, next)
			old := r.DeepCopy()
			old.Status.Phase = phase
			b.update(r, func() { r.Status.Phase = velerov1.PodVolumePhaseCompleted })
			b.configure(func(c *control.Config) {
				c.PerNode = 1
				if phase == "" {
					c.Client = b.readOld(old)
				} else {
					c.Client, c.Reader = b.readOld(old.DeepCopy()), b.readOld(old)
				}
			})
			b.step(r)
			require.Equal(t, velerov1.PodVolumePhaseCompleted, r.Status.Phase)
			require.Empty(t, r.Status.Message)
			require.Nil(t, b.mover("b-1"))
			b.step(next)
			require.Equal(t, velerov1.PodVolumePhaseAccepted, next.Status.Phase, "its slot is free")
		})
	}
}

// TestARequestThatWasAcceptedHasASlot whoever accepted it.
func TestARequestThatWasAcceptedHasASlot(t *testing.T) {
	r, next := newBackup("b-1", "scratch"), newBackup("b-2", "scratch")
	b := newBed(t, r, next)
	b.step(r)
	b.configure(func(c *control.Config) { c.PerNode = 1 })
	b.step(r)
	b.step(next)
	require.Empty(t, next.Status.Phase)
}

// TestTheFirstPasswordCounts: two that make one at a time use the same.
func TestTheFirstPasswordCounts(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.refuse = func(o client.Object) error {
		if o.GetName() != "velero-repo-credentials" {
			return nil
		}
		b.refuse = nil
		require.NoError(t, b.client.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: o.GetName()}, Data: map[string][]byte{"repository-password": []byte("first")},
		}))
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, o.GetName())
	}
	b.step(r)
	require.Equal(t, "first", string(b.secret("b-1").Data["password"]))
}
