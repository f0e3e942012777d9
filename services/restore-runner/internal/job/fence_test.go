package job_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// A runner stopped in the middle of a request wakes up when another has long finished, or in the
// middle of its work.
func TestAWokenRunnerDoesNoHarm(t *testing.T) {
	undisturbed := newScene(t, velerov1.PolicyTypeUpdate)
	undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	for _, confirmed := range []bool{true, false} {
		for _, meanwhile := range []bool{false, true} {
			for _, at := range []int64{1, 3, 8, 14, 20} {
				t.Run(fmt.Sprint("request ", at, " confirmed ", confirmed, " meanwhile ", meanwhile), func(t *testing.T) {
					b := newScene(t, velerov1.PolicyTypeUpdate)
					testPausedRunner(t, b, at, confirmed, meanwhile)
					require.Equal(t, want, b.readOutcome(t))
				})
			}
		}
	}
}

// testPausedRunner pauses a runner at a request that changes the cluster, lets another take over, and wakes it
// at its end, or at its first request. Unless confirmed it detects the takeover by the records
// alone.
func testPausedRunner(t *testing.T, b *bench, at int64, confirmed, meanwhile bool) {
	t.Helper()
	var requests atomic.Int64
	paused, wake := make(chan struct{}), make(chan struct{})
	var woken sync.Once
	b.cluster.FailTogether(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodGet {
			return 0, false
		}
		if r.UserAgent() != "zombie" {
			if meanwhile {
				woken.Do(func() { close(wake) })
			}
			return refuseAdmission(r, body)
		}
		if n := requests.Add(1); n >= at {
			if n == at {
				close(paused)
			}
			<-wake
		}
		return refuseAdmission(r, body)
	})
	zombie := b.config
	own := &jobtest.Holder{Name: "zombie", ConfirmWith: func(client.Object) error {
		if confirmed && requests.Load() >= at {
			<-wake
			return claim.ErrLost
		}
		return nil
	}}
	zombie.WorkDir, zombie.REST, zombie.Claims = t.TempDir(), rest.CopyConfig(b.config.REST), own
	zombie.REST.UserAgent = "zombie"
	ended := make(chan error, 1)
	go func() { ended <- newRunner(zombie).Run(t.Context(), "r", "uid-r") }()
	<-paused
	successor := b.config
	successor.WorkDir, successor.Claims = t.TempDir(), &jobtest.Holder{Name: "successor"}
	require.NoError(t, newRunner(successor).Run(t.Context(), "r", "uid-r"))
	woken.Do(func() { close(wake) })
	require.NoError(t, <-ended, "it stopped by itself")
	b.cluster.Fail(nil)
	held, _, err := claim.Parse(b.getRestore(t))
	require.NoError(t, err)
	require.Equal(t, claim.Claim{Owner: "successor", Epoch: 2}, held)
}

// Nothing in flight is cut off by a stop, and nothing new begun.
func TestAStopLetsWhatIsInFlightEnd(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 60)
	b.createRestore(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var inFlight atomic.Int64
	b.cluster.FailTogether(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") {
			if inFlight.Add(1) == 3 {
				cancel()
			}
			<-ctx.Done()
		}
		return 0, false
	})
	require.ErrorIs(t, b.runner.Run(ctx, "r", "uid-r"), context.Canceled)
	held, _, err := claim.Parse(b.getRestore(t))
	require.NoError(t, err)
	require.Empty(t, held.Owner)
	begun := int(inFlight.Load())
	require.Less(t, begun, 60)

	b.cluster.Fail(nil)
	next := b.config
	next.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
	require.Equal(t, &velerov1.RestoreProgress{TotalItems: 60, ItemsRestored: 60}, r.Status.Progress)
	require.Zero(t, r.Status.Warnings)
	require.Equal(t, 60, strings.Count(b.readGzip(t, layout.RestoreResourceList("r")), "(created)"))
	require.Len(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"), 60, "each object was touched once")
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), fmt.Sprintf("restore goes on at epoch 2: %d of 60", begun))
}

// What does not end in time has no outcome, least of all a failure.
func TestAStopDoesNotWaitForEver(t *testing.T) {
	for name, policy := range map[string]velerov1.PolicyType{"creation": "", "update": velerov1.PolicyTypeUpdate} {
		t.Run(name, func(t *testing.T) {
			b := newScene(t, policy)
			undisturbed := newScene(t, policy)
			undisturbed.runLife(t, 0, false)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			method := map[string]string{"creation": http.MethodPost, "update": http.MethodPatch}[name]
			b.cluster.FailTogether(func(r *http.Request, body map[string]any) (int, bool) {
				if r.Method == method && strings.Contains(r.URL.Path, "/there/") {
					cancel()
					<-r.Context().Done()
				}
				return refuseAdmission(r, body)
			})
			config := b.config
			config.Clock = quick{}
			require.ErrorIs(t, newRunner(config).Run(ctx, "r", "uid-r"), context.Canceled)
			b.runLife(t, 0, false)
			require.Equal(t, undisturbed.readOutcome(t), b.readOutcome(t))
		})
	}
}

// No successor can read the records in the work directory of a dead runner.
func TestATakeoverAtAReadOnlyLocationStartsFromThePlan(t *testing.T) {
	want := newScene(t, "")
	want.runLife(t, 0, false)
	for _, at := range []int{2, 6, 12, 18} {
		b := newScene(t, "")
		b.locations.store = objectstore.ReadOnly(b.store)
		require.True(t, b.runLife(t, at, true).isGone())
		b.runLife(t, 0, false)
		r, w := b.getRestore(t), want.getRestore(t)
		require.Equal(t, w.Status.Phase, r.Status.Phase)
		require.Equal(t, w.Status.Progress, r.Status.Progress)
		require.Equal(t, w.Status.Errors, r.Status.Errors)
		warned := 1
		if held, _, err := claim.Parse(r); err != nil || held.Epoch == 1 {
			warned = 0 // it died before it had taken the restore
		}
		require.Equal(t, w.Status.Warnings+warned, r.Status.Warnings, "death at write %d", at)
		require.Equal(t, want.cluster.Content(), b.cluster.Content())
		require.Empty(t, b.store.Keys()[1:], "only the backup")
	}
}

func TestDeathOfAFailingRestore(t *testing.T) {
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			b := newBench(t) // without a tarball
			b.createRestore(t, true)
			first := b.runLife(t, k, after)
			b.runLife(t, 0, false)
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase, first.what)
			require.Contains(t, r.Status.FailureReason, "open the tarball")
			require.Equal(t, 1, strings.Count(b.readGzip(t, layout.RestoreLog("r")), "restore failed: open the tarball"))
			if !first.isGone() {
				require.Greater(t, k, 4)
				break
			}
		}
	}
}

// An object of an earlier restore of the same name is not this one's work.
func TestATakeoverKnowsItsOwnObjectsByTheirAge(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 1)
	b.createRestore(t, true, func(r *velerov1.Restore) { r.CreationTimestamp.Time = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC) })
	require.True(t, b.runLife(t, 5, true).isGone())
	labels := object{"velero.io/backup-name": "b", "velero.io/restore-name": "r"}
	b.cluster.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	b.cluster.Put("/api/v1/namespaces/a/configmaps/c000", object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "old"},
		"metadata": object{"name": "c000", "namespace": "a", "labels": labels}}) // of January the 1st
	b.runLife(t, 0, false)
	require.Contains(t, b.readGzip(t, layout.RestoreResourceList("r")), "c000(failed)")
}
