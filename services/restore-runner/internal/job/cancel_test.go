package job_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// requestCancel writes a request to cancel on the restore, and passes it to the guard if told is set.
func (b *bench) requestCancel(t *testing.T, told bool) {
	t.Helper()
	r := b.getRestore(t)
	require.NoError(t, mark.WriteCancelRequest(r, mark.CancelRequest{By: "alice"}))
	require.NoError(t, b.client.Update(t.Context(), r))
	if told {
		b.claims.Show(r)
	}
}

// atCreate calls do before the nth ConfigMap is created.
func (b *bench) atCreate(n int, do func()) {
	var mu sync.Mutex
	count := 0
	b.cluster.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/configmaps") {
			return 0, false
		}
		mu.Lock()
		defer mu.Unlock()
		if count++; count == n {
			do()
		}
		return 0, false
	})
}

const manyMaps = 400

// requireCancelled checks a restore that ended by the request, with all its files.
func (b *bench) requireCancelled(t *testing.T) *velerov1.Restore {
	t.Helper()
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "cancelled by alice", r.Status.FailureReason)
	require.NotNil(t, r.Status.CompletionTimestamp)
	require.False(t, mark.IsCommitting(r))
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "cancelled by alice")
	for _, key := range []string{layout.RestoreResults("r"), layout.RestoreItemOperations("r"), layout.RestoreVolumeInfo("r")} {
		b.readGzip(t, key)
	}
	require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailed}, b.ended)
	return r
}

func TestACancelledRestoreBeginsNothingMore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, manyMaps)
	b.createRestore(t, true)
	b.atCreate(3, func() { b.requestCancel(t, true) })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.requireCancelled(t)
	created := len(b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"))
	require.GreaterOrEqual(t, created, 3)
	require.Less(t, created, manyMaps)
	require.Equal(t, manyMaps, r.Status.Progress.TotalItems)
	require.Equal(t, created, r.Status.Progress.ItemsRestored, "what was restored is told")
	require.Equal(t, created, strings.Count(b.readGzip(t, layout.RestoreResourceList("r")), "(created)"))
}

// It was done before the guard looked: the mark finds the request.
func TestARequestBeforeTheEndIsMarkedCounts(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	b.atCreate(3, func() { b.requestCancel(t, false) })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	b.requireCancelled(t)
}

// marked calls do once, when the mark was written.
type marked struct {
	client.Client
	once sync.Once
	do   func()
}

func (m *marked) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := m.Client.Patch(ctx, obj, patch, opts...)
	if err == nil && mark.IsCommitting(obj) {
		m.once.Do(m.do)
	}
	return err
}

func TestARequestAfterTheEndIsMarkedIsTooLate(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	asked := false
	b.config.Client = &marked{Client: b.client, do: func() { asked = true; b.requestCancel(t, true) }}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.True(t, asked)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
	require.False(t, mark.IsCommitting(r), "nothing is left of the mark")
}

// The first holder died; its successor creates nothing, and reports what the first one restored.
func TestASuccessorOfACancelledRestoreTellsWhatWasRestored(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, manyMaps)
	b.createRestore(t, true)
	b.config.RecordBatch = 2
	ctx, stop := context.WithCancel(t.Context())
	b.atCreate(20, func() {
		stop()
		b.claims.LoseClaim() // without a word of what it did last
	})
	dying := b.config
	var leave func()
	dying.REST, leave = b.cluster.OpenFaultyDoor(nil)
	_ = newRunner(dying).Run(ctx, "r", "uid-r")
	leave() // what it still sent has no effect
	before := len(b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"))
	require.Less(t, before, manyMaps)
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)

	b.cluster.Fail(nil)
	b.requestCancel(t, false)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.requireCancelled(t)
	require.Len(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"), before, "nothing was begun")
	require.Positive(t, r.Status.Progress.ItemsRestored)
	require.LessOrEqual(t, r.Status.Progress.ItemsRestored, before)
}

// While nothing was restored, the location is not waited for.
func TestACancelledRestoreDoesNotWaitForItsLocation(t *testing.T) {
	b := newBench(t)
	b.createRestore(t, true)
	var once sync.Once
	b.locations.err = netError{}
	b.locations.failed = func() { once.Do(func() { b.requestCancel(t, true) }) }
	b.config.StorePatience = time.Hour
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "cancelled by alice", r.Status.FailureReason)
}

// netError may go away by itself.
type netError struct{}

func (netError) Error() string   { return "no route to host" }
func (netError) Timeout() bool   { return true }
func (netError) Temporary() bool { return true }

// A claim that was taken ends the job as ever, cancelled or not.
func TestALostClaimOutweighsTheRequest(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, manyMaps)
	b.createRestore(t, true)
	b.atCreate(3, func() {
		b.requestCancel(t, true)
		taken := b.getRestore(t)
		require.NoError(t, claim.Set(taken, claim.Claim{Owner: "queue-scheduler", Epoch: 2}))
		require.NoError(t, b.client.Update(t.Context(), taken))
		b.claims.LoseClaim()
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseInProgress, r.Status.Phase)
	require.Empty(t, r.Annotations[holdfast.AnnotationCommitting])
	require.Empty(t, b.ended)
}
