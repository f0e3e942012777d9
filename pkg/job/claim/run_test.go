package claim

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestADeathIsSeenWhenTheTimeoutIsOver kills an instance right after a renewal, at several moments
// between two reads of the other, which take a while: a read must not come a moment before the
// timeout, with the next one a beat later.
func TestADeathIsSeenWhenTheTimeoutIsOver(t *testing.T) {
	const latency = 40 * time.Millisecond
	for _, after := range []time.Duration{time.Millisecond, beat / 2, beat - time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					<-time.After(latency)
					return c.List(ctx, list, opts...)
				},
			})
			instance := func(name string) *Instance {
				return NewInstance(Config{
					Reader: api, Client: api, Namespace: namespace, Name: name, Timeout: timeout, Busy: func() bool { return true }, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
				})
			}
			one, two := instance("one"), instance("two")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- two.Run(ctx) }()
			<-time.After(after)
			var renewed time.Time
			for range 2 * timeout / beat {
				renewed = time.Now()
				one.runBeat(t.Context())
				require.Empty(t, two.Expired())
				<-time.After(beat - time.Since(renewed))
			}
			require.Equal(t, "one", <-two.Expired())
			silent := time.Since(renewed)
			t.Log(after, silent)
			require.GreaterOrEqual(t, silent, timeout)
			require.Less(t, silent, timeout+beat+3*latency)
			cancel()
			require.NoError(t, <-ended)
		})
	}
}
