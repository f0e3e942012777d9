package job_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// unlucky loses patches that end a restore: the request when carry is false, else its answer.
type unlucky struct {
	client.Client
	lose  atomic.Int64
	carry bool
}

func (u *unlucky) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	r, ok := obj.(*velerov1.Restore)
	if !ok || !r.Status.Phase.Terminal() || u.lose.Add(-1) < 0 {
		return u.Client.Patch(ctx, obj, patch, opts...)
	}
	if u.carry {
		if err := u.Client.Patch(ctx, obj, patch, opts...); err != nil {
			return err
		}
	}
	return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

func TestALostTerminalWriteIsRepeatedAndNotTheRestore(t *testing.T) {
	for name, carry := range map[string]bool{"request lost": false, "answer lost": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true)
			c := &unlucky{Client: b.client, carry: carry}
			c.lose.Store(1)
			b.config.Client = c
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
			held, _, err := claim.Parse(r)
			require.NoError(t, err)
			require.EqualValues(t, 1, held.Epoch, "carried out once")
			require.Len(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"), 3)
			require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseCompleted}, b.ended, "told once")
		})
	}
}
