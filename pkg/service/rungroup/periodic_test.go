package rungroup_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

// The signal is set twice while a pass is under way, so that Run cannot take the first before the
// second is given.
func TestPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		woken, ended := rungroup.NewSignal(), make(chan error)
		var passes atomic.Int32
		go func() {
			ended <- rungroup.RunPeriodically(ctx, clock.RealClock{}, time.Minute, woken, func(context.Context) {
				if passes.Add(1) == 1 {
					woken.Wake()
					woken.Wake()
				}
			})
		}()
		synctest.Wait()
		require.Equal(t, 2, int(passes.Load()), "at once, and one more for two signals")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 3, int(passes.Load()), "once a period")
		woken.Wake()
		synctest.Wait()
		require.Equal(t, 4, int(passes.Load()), "when it is woken")
		stop()
		require.NoError(t, <-ended)
		rungroup.Signal(nil).Wake()
	})
}
