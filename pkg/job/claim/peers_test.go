package claim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// A process without claims detects the end of instances as those with claims do: by a release, or
// by a Lease that it observed unchanged for its duration.
func TestPeersSeeAnInstanceEnd(t *testing.T) {
	var broken error
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if broken != nil {
				return broken
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	clk := clocktesting.NewFakeClock(time.Now())
	peers := claim.NewPeers(api, "velero", clk)
	pass := func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) }
	find := func() (string, bool) {
		address, gone, err := peers.Find(t.Context(), "runner-1")
		require.NoError(t, err)
		return address, gone
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "runner-1", Annotations: map[string]string{"holdfast.io/address": "10.0.0.1:7442"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("runner-1"), LeaseDurationSeconds: ptr.To(int32(30))},
	}
	require.NoError(t, api.Create(t.Context(), lease))
	renew := func() {
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(clk.Now()))
		require.NoError(t, api.Update(t.Context(), lease))
	}

	address, gone := find()
	require.Equal(t, "10.0.0.1:7442", address)
	require.False(t, gone)
	for range 5 {
		pass(20 * time.Second)
		renew()
		_, gone = find()
		require.False(t, gone)
	}
	pass(25 * time.Second)
	_, gone = find()
	require.False(t, gone)
	broken = errors.New("away")
	pass(2 * time.Minute)
	_, _, err := peers.Find(t.Context(), "runner-1")
	require.ErrorIs(t, err, broken)
	broken = nil
	_, gone = find()
	require.False(t, gone, "nobody looked for longer than the Lease lasts")
	pass(15 * time.Second)
	_, gone = find()
	require.False(t, gone)
	pass(16 * time.Second)
	_, gone = find()
	require.True(t, gone)

	renew()
	pass(2 * time.Second)
	_, gone = find()
	require.False(t, gone, "it was paused")
	lease.Spec.HolderIdentity = ptr.To("")
	renew()
	pass(2 * time.Second)
	_, gone = find()
	require.True(t, gone, "released")

	lease.Spec.HolderIdentity = ptr.To("runner-1")
	renew()
	pass(2 * time.Second)
	_, gone = find()
	require.False(t, gone)
	require.NoError(t, api.Delete(t.Context(), lease))
	pass(2 * time.Second)
	_, gone = find()
	require.False(t, gone, "somebody removed its Lease, it makes another")
	pass(20 * time.Second)
	find()
	pass(20 * time.Second)
	_, gone = find()
	require.True(t, gone)
}
