package apply_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

func TestRequestsOutlastANetworkThatIsAway(t *testing.T) {
	tests := map[string]struct {
		err   error
		again bool
	}{
		"name not resolved": {&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "api", IsTemporary: true}}, true},
		"name not found":    {&net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}, true},
		"no route to host":  {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}, true},
		"no network":        {&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}, true},
		"anything else":     {errors.New("unknown certificate"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := kubetest.Start(t)
			s.Put("/api/v1/namespaces/a", object{})
			cfg, dials := s.Config(), atomic.Int64{}
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) <= 2 {
					return nil, tt.err
				}
				var d net.Dialer
				return d.DialContext(ctx, network, address)
			}
			c, err := apply.NewClient(cfg, ours, &watcher{}, clock.RealClock{}, nil)
			require.NoError(t, err)
			got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}}))
			if !tt.again {
				require.ErrorIs(t, got.Err, tt.err)
				require.EqualValues(t, 1, dials.Load(), "nothing to wait for")
				return
			}
			require.NoError(t, got.Err)
			require.Equal(t, apply.Created, got.Action)
			require.EqualValues(t, 3, dials.Load())
		})
	}
}
