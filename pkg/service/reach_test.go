package service_test

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// earlyListener is a clock that can be put ahead; its tickers tick as real ones.
type earlyListener struct {
	clock.RealClock
	by atomic.Int64
}

func (a *earlyListener) Now() time.Time { return time.Now().Add(time.Duration(a.by.Load())) }

func (a *earlyListener) Since(then time.Time) time.Duration { return a.Now().Sub(then) }

// TestALongOutageIsNotReady: a service that reached NATS or the API server once was ready for good,
// and kept getting calls that it could not answer.
func TestALongOutageIsNotReady(t *testing.T) {
	w := newWorld(t)
	nats, err := embednats.Start(embednats.Config{Dir: filepath.Join(w.dir, "own")})
	require.NoError(t, err)
	defer nats.Stop()
	clk := &earlyListener{}
	base := w.newBase(t, "queue-scheduler")
	base.Options.NATSURL, base.Clock = nats.URL(), clk
	r, err := service.New(t.Context(), base)
	require.NoError(t, err)
	stop := runRuntimeInTest(t, r)
	says := func(want string) func() bool {
		return func() bool { _, body := getPath(t, r, "/readyz"); return body == want }
	}
	require.Eventually(t, says("ok\n"), patience, 5*time.Millisecond)

	nats.Stop()
	require.Eventually(t, func() bool { return !r.Fabric().Connected() }, patience, 5*time.Millisecond)
	clk.by.Add(int64(2 * service.OutageGrace))
	require.Eventually(t, says("not ready: nats\n"), patience, 5*time.Millisecond, "the API server answers, so it is not named for long")
	w.api.Close()
	code, _ := getPath(t, r, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	clk.by.Add(int64(2 * service.OutageGrace))
	require.Eventually(t, says("not ready: kubernetes API, nats\n"), patience, 5*time.Millisecond)
	require.NoError(t, stop())
}
