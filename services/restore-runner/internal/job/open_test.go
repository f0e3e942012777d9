package job_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// quick is a clock whose pauses are a thousand times shorter.
type quick struct{ clock.RealClock }

func (quick) NewTimer(d time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(d / 1000) }

func noSuchHost() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "bucket", IsNotFound: true}}
}

// hurriedRunner is the bench's runner with short pauses.
func (b *bench) hurriedRunner(patience time.Duration) *runner {
	b.config.Clock, b.config.StorePatience = quick{}, patience
	return newRunner(b.config)
}

func TestALocationThatStaysUnreachableFailsTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 1)
	b.createRestore(t, true)
	tries := 0
	b.locations.err, b.locations.failed = noSuchHost(), func() { tries++ }
	require.NoError(t, b.hurriedRunner(50*time.Millisecond).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, `location "default"`)
	require.Contains(t, r.Status.FailureReason, "no such host")
	require.Greater(t, tries, 1)
}

func TestALocationThatComesBackInTimeIsRestoredFrom(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	tries := 0
	b.locations.err = noSuchHost()
	b.locations.failed = func() {
		if tries++; tries == 3 {
			b.locations.err = nil
		}
	}
	require.NoError(t, b.hurriedRunner(time.Minute).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	held, _, err := claim.Parse(r)
	require.NoError(t, err)
	require.EqualValues(t, 1, held.Epoch)
}

func TestWaitingForALocationEndsWithTheRestoreOrTheProcess(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *bench, context.CancelFunc){
		"deleted": func(t *testing.T, b *bench, _ context.CancelFunc) {
			require.NoError(t, b.client.Delete(t.Context(), b.getRestore(t)))
		},
		"stopped": func(_ *testing.T, _ *bench, cancel context.CancelFunc) { cancel() },
		"lost":    func(_ *testing.T, b *bench, _ context.CancelFunc) { b.claims.LoseClaim() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 1)
			b.createRestore(t, true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var once sync.Once
			b.locations.err, b.locations.failed = noSuchHost(), func() { once.Do(func() { stop(t, b, cancel) }) }
			if err := b.hurriedRunner(time.Hour).Run(ctx, "r", "uid-r"); name != "stopped" {
				require.NoError(t, err)
			}
			require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
			require.Empty(t, b.ended)
		})
	}
}
