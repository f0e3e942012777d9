package job_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		serveActions()
	}
	// client-go shares its idle connections in the process; they belong to no restore.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func TestRestoreFromClaimToTerminalPhase(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 5)
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))

	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	require.NotNil(t, r.Status.StartTimestamp)
	require.NotNil(t, r.Status.CompletionTimestamp)
	require.Equal(t, &velerov1.RestoreProgress{TotalItems: 5, ItemsRestored: 5}, r.Status.Progress)
	require.Contains(t, r.Finalizers, velerov1.RestoreFinalizer)
	held, ok, err := claim.Parse(r)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, claim.Claim{Owner: "me", Epoch: 1}, held)
	require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseCompleted}, b.ended)

	require.Contains(t, b.readGzip(t, layout.RestoreResourceList("r")), `"v1/ConfigMap":["a/c000(created)"`)
	require.Equal(t, `{"warnings":{},"errors":{}}`+"\n", b.readGzip(t, layout.RestoreResults("r")))
	require.Equal(t, "[]\n", b.readGzip(t, layout.RestoreItemOperations("r")))
	require.Equal(t, "[]\n", b.readGzip(t, layout.RestoreVolumeInfo("r")))
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "level=info")
	var records []string
	require.NoError(t, b.store.List(t.Context(), layout.RestoreRecordsPrefix("r"), func(i objectstore.Info) error {
		records = append(records, i.Key)
		return nil
	}))
	require.Equal(t, layout.RestoreOwnerFile("r", "uid-r"), records[0])
	owner, err := objectstore.ReadAll(t.Context(), b.store, records[0], 1<<10)
	require.NoError(t, err)
	require.JSONEq(t, `{"restoreUID":"uid-r","clusterUID":"uid-cluster"}`, string(owner))
	var outcomes string
	for i, key := range records[1:] {
		require.Equal(t, journal.Key("restores/r/records/uid-r/record-", 1, int64(i+1)), key)
		outcomes += b.readGzip(t, key)
	}
	require.Equal(t, 5, strings.Count(outcomes, `"action":"created"`))
	require.Contains(t, outcomes, `"finished":{"phase":"Completed"`)

	require.NoError(t, testutil.GatherAndCompare(b.registry, strings.NewReader(`
# HELP velero_restore_attempt_total Restores begun.
# TYPE velero_restore_attempt_total counter
velero_restore_attempt_total{schedule=""} 0
velero_restore_attempt_total{schedule="nightly"} 1
# HELP velero_restore_success_total Restores completed without an error.
# TYPE velero_restore_success_total counter
velero_restore_success_total{schedule=""} 0
velero_restore_success_total{schedule="nightly"} 1
`), "velero_restore_attempt_total", "velero_restore_success_total"))

	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"), "a terminal restore is left alone")
	require.Len(t, b.ended, 1)
}

func TestWhatIsNotTaken(t *testing.T) {
	held := func(holder string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Status.Phase = velerov1.RestorePhaseInProgress
			_ = claim.Set(r, claim.Claim{Owner: holder, Epoch: 3})
		}
	}
	phase := func(p velerov1.RestorePhase) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			_ = claim.Set(r, claim.Claim{Epoch: 1})
			r.Status.Phase = p
		}
	}
	damaged := func(p velerov1.RestorePhase) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Status.Phase, r.Annotations = p, map[string]string{holdfast.AnnotationClaim: "no JSON"}
		}
	}
	tests := map[string]struct {
		admitted bool
		change   func(*velerov1.Restore)
		uid      string
	}{
		"not admitted":                 {false, phase(""), "uid-r"},
		"interrupted and not admitted": {false, held("dead"), "uid-r"},
		"held by a live runner":        {true, held("alive"), "uid-r"},
		"failed validation":            {true, phase(velerov1.RestorePhaseFailedValidation), "uid-r"},
		"waiting for operations":       {true, phase(velerov1.RestorePhaseWaitingForPluginOperations), "uid-r"},
		"another of its name":          {true, phase(""), "older"},
		"not admitted, bad claim":      {false, damaged(""), "uid-r"},
		"ended, bad claim":             {true, damaged(velerov1.RestorePhaseCompleted), "uid-r"},
		"waiting, bad claim":           {true, damaged(velerov1.RestorePhaseWaitingForPluginOperations), "uid-r"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 1)
			b.createRestore(t, tt.admitted, tt.change)
			before := b.getRestore(t)
			require.NoError(t, b.runner.Run(t.Context(), "r", types.UID(tt.uid)))
			require.Equal(t, before, b.getRestore(t))
			require.Empty(t, b.cluster.Requests("POST "))
		})
	}
	b := newBench(t)
	require.NoError(t, b.runner.Run(t.Context(), "absent", "uid-r"))

	b.storeTarball(t, 1)
	restore := b.createRestore(t, true, func(r *velerov1.Restore) { r.Finalizers = []string{velerov1.RestoreFinalizer} })
	require.NoError(t, b.client.Delete(t.Context(), restore))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Empty(t, b.getRestore(t).Status.Phase, "one that is being deleted is not begun")
}

func TestFatalFailuresAndDamage(t *testing.T) {
	tests := map[string]struct {
		prepare func(*testing.T, *bench)
		phase   velerov1.RestorePhase
		reason  string
	}{
		"no backup": {func(t *testing.T, b *bench) {
			require.NoError(t, b.client.Delete(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"}}))
		}, velerov1.RestorePhaseFailed, `read backup "b"`},
		"no location": {func(_ *testing.T, b *bench) { b.locations.err = errors.New("spec.config[x]: unknown key") },
			velerov1.RestorePhaseFailed, "spec.config[x]"},
		"no tarball": {func(*testing.T, *bench) {}, velerov1.RestorePhaseFailed, "open the tarball"},
		"bad volume information": {func(t *testing.T, b *bench) {
			b.storeTarball(t, 1)
			require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupVolumeInfo("b"), []byte("no gzip")))
		}, velerov1.RestorePhaseFailed, "volume information"},
		"truncated tarball": {func(t *testing.T, b *bench) {
			whole := b.storeTarball(t, 5)
			require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), whole[:len(whole)/2]))
		}, velerov1.RestorePhasePartiallyFailed, ""},
		"no tarball but text": {func(t *testing.T, b *bench) {
			require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), []byte("hello")))
		}, velerov1.RestorePhasePartiallyFailed, ""},
		"an object that is refused": {func(t *testing.T, b *bench) {
			b.storeTarball(t, 3)
			b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if meta, ok := body["metadata"].(map[string]any); ok && meta["name"] == "c001" {
					return http.StatusUnprocessableEntity, false
				}
				return 0, false
			})
		}, velerov1.RestorePhasePartiallyFailed, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tt.prepare(t, b)
			b.createRestore(t, true)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, tt.phase, r.Status.Phase, r.Status.FailureReason)
			require.Contains(t, r.Status.FailureReason, tt.reason)
			require.NotNil(t, r.Status.CompletionTimestamp)
			if tt.phase == velerov1.RestorePhasePartiallyFailed {
				require.Equal(t, 1, r.Status.Errors)
				require.NotEqual(t, `{"warnings":{},"errors":{}}`+"\n", b.readGzip(t, layout.RestoreResults("r")))
			}
		})
	}
}

// prepareInterrupted prepares a restore in the middle of which stop is called.
func prepareInterrupted(t *testing.T, b *bench, stop func()) {
	t.Helper()
	b.storeTarball(t, 60)
	b.createRestore(t, true)
	var once sync.Once
	n := 0
	var mu sync.Mutex
	b.cluster.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			if n++; n == 10 {
				once.Do(stop)
			}
		}
		return 0, false
	})
}

func (b *bench) marksDeleting(t *testing.T) {
	t.Helper()
	backup := &velerov1.Backup{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "b"}, backup))
	backup.Status.Phase = velerov1.BackupPhaseDeleting
	require.NoError(t, b.client.Update(t.Context(), backup))
}

// A deletion that marks the backup between admission and the claim finds no restore in progress and
// removes the data: a restore that begins nevertheless restores half of it.
func TestARestoreDoesNotBeginFromABackupThatIsBeingDeleted(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	b.marksDeleting(t)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, `spec.backupName: backup "b" is being deleted`, r.Status.FailureReason)
	require.Empty(t, b.cluster.Requests("POST "))
}

// A deletion that was admitted beside the restore waits for it, so that a successor must not end
// the restore.
func TestATakeoverGoesOnWhileADeletionWaits(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	prepareInterrupted(t, b, cancel)
	stopped := b.config
	var leave func()
	stopped.REST, leave = b.cluster.OpenFaultyDoor(nil)
	require.ErrorIs(t, newRunner(stopped).Run(ctx, "r", "uid-r"), context.Canceled)
	leave()
	b.cluster.Fail(nil)
	b.marksDeleting(t)
	next := b.config
	next.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase, b.getRestore(t).Status.FailureReason)
}
