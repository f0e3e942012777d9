package job_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// aheadClock is the real clock, as far ahead as the test says.
type aheadClock struct {
	clock.RealClock
	by atomic.Int64
}

func (c *aheadClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *aheadClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Nothing but `InProgress` said that a restore waits, and its log did not mention it afterwards.
func TestARestoreTellsWhatItWaitsFor(t *testing.T) {
	clk, events := &aheadClock{}, &jobtest.Events{}
	b, _ := waitingForWeb(t, func(*bench) { clk.by.Store(int64(10 * time.Second)) })
	b.config.Clock, b.config.Events = clk, events
	b.runner = newRunner(b.config)
	ended := make(chan error, 1)
	go func() { ended <- b.runner.Run(t.Context(), "r", "uid-r") }()
	const what = "pods a/web: hooks wait for container main: nothing is known of it, the pod's phase (since "
	require.Eventually(t, func() bool {
		waits := mark.WaitsOf(b.getRestore(t))
		return strings.HasPrefix(strings.Join(waits.Texts(), "\n"), what)
	}, time.Minute, 10*time.Millisecond)
	b.startContainer("web")
	require.NoError(t, <-ended)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
	require.Empty(t, mark.WaitsOf(r), "an ended restore waits for nothing")
	require.Equal(t, 1, strings.Count(events.Text(), "Normal Waiting: "+what))
	log := b.readGzip(t, layout.RestoreLog("r"))
	require.Equal(t, 1, strings.Count(log, "hooks wait for container main"), log)
}
