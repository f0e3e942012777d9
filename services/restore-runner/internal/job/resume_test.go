package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// reader fails the reads that the test selects.
type reader struct {
	client.Reader
	fail func(client.Object) error
}

func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := r.fail(obj); err != nil {
		return err
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

// failReads lets the next n reads of objects of a type fail.
func failReads[T client.Object](b *bench, n int, err error) {
	var read atomic.Int32
	b.config.Reader = reader{b.client, func(o client.Object) error {
		if _, ok := o.(T); ok && int(read.Add(1)) <= n {
			return err
		}
		return nil
	}}
}

var (
	errBusy      = apierrors.NewTooManyRequests("busy", 0)
	errForbidden = apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
)

func (b *bench) deleteBackup(t *testing.T) {
	t.Helper()
	require.NoError(t, b.client.Delete(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"}}))
}

// forbidResuming has the API server refuse the patch that ends the pause.
func (b *bench) forbidResuming() {
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && r.URL.Path == gadgetPath {
			return http.StatusForbidden, false
		}
		return refuseAdmission(r, body)
	})
}

const mayBePaused = "objects that it created may still be paused"

// A successor reads the records of the former runner, which list what is paused, before anything
// can end the restore.
func TestATakeoverThatFailsResumesWhatADeadRunnerPaused(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *bench)
		reason  string
	}{
		"cancelled while the API server is busy": {func(t *testing.T, b *bench) {
			b.requestCancel(t, false)
			failReads[*velerov1.Backup](b, 2, errBusy)
		}, "cancelled by alice"},
		"cancelled, and the backup may not be read": {func(t *testing.T, b *bench) {
			b.requestCancel(t, false)
			failReads[*velerov1.Backup](b, 1, errForbidden)
		}, "cancelled by alice"},
		"backup deleted": {func(t *testing.T, b *bench) { b.deleteBackup(t) }, `read backup "b": backups.velero.io "b" not found`},
		"cancelled, and the backup deleted": {func(t *testing.T, b *bench) {
			b.requestCancel(t, false)
			b.deleteBackup(t)
		}, `read backup "b": backups.velero.io "b" not found`},
		"backup moved": {func(t *testing.T, b *bench) {
			b.deleteBackup(t)
			require.NoError(t, b.client.Create(t.Context(), &velerov1.Backup{
				ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b"}, Spec: velerov1.BackupSpec{StorageLocation: "other"},
			}))
		}, `spec.backupName: backup "b" is in location "other", and was in "default" when the restore began`},
	} {
		t.Run(name, func(t *testing.T) {
			b := orphanedPaused(t)
			require.Equal(t, "default", mark.PausedLocation(b.getRestore(t)))
			tt.prepare(t, b)
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
			require.Equal(t, tt.reason, r.Status.FailureReason)
			require.Equal(t, object{"size": 1.0}, b.readGadget())
			require.Empty(t, mark.PausedLocation(r))
			require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "restore failed: "+tt.reason[:10])
		})
	}
}

// A moment of the API server neither ends an attempt nor begins another.
func TestATakeoverOutlastsABusyAPIServer(t *testing.T) {
	b := orphanedPaused(t)
	failReads[*velerov1.Backup](b, 2, errBusy)
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	held, _, err := claim.Parse(r)
	require.NoError(t, err)
	require.EqualValues(t, 2, held.Epoch)
}

// What does not end a restore by itself does not end it because it is cancelled, while its records
// are not open: another attempt may open them.
func TestARequestWaitsForTheRecords(t *testing.T) {
	b := orphanedPaused(t)
	b.requestCancel(t, false)
	failReads[*corev1.Namespace](b, 1, errForbidden)
	require.ErrorContains(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), "identify the cluster")
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	b.requireCancelled(t)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
}

// Without records it is not known what is paused: the failure reason and the log report that, and
// the mark stays.
func TestATakeoverWithoutRecordsSaysThatObjectsMayBePaused(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *bench)
		reason  string
	}{
		"bucket unreadable": {func(_ *testing.T, b *bench) { b.locations.err = objectstore.ErrAccess }, objectstore.ErrAccess.Error() + "; " + mayBePaused},
		"bucket and backup gone": {func(t *testing.T, b *bench) {
			b.locations.err = objectstore.ErrNoBucket
			b.deleteBackup(t)
		}, `read backup "b": backups.velero.io "b" not found; ` + mayBePaused},
		"bucket away, and cancelled": {func(t *testing.T, b *bench) {
			b.locations.err = netError{}
			b.config.StorePatience, b.config.Clock = time.Second, quick{} // opening ends sooner
			b.requestCancel(t, false)
		}, "cancelled by alice; " + mayBePaused},
	} {
		t.Run(name, func(t *testing.T) {
			b := orphanedPaused(t)
			tt.prepare(t, b)
			var log bytes.Buffer
			b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
			require.Contains(t, r.Status.FailureReason, tt.reason)
			require.Equal(t, "default", mark.PausedLocation(r))
			require.Contains(t, log.String(), mayBePaused)
		})
	}
}

// A damaged record ends the restore; the paused objects of the other records are resumed.
func TestADamagedRecordLeavesTheOthers(t *testing.T) {
	b := orphanedPaused(t)
	prefix := layout.RestoreRecords("r", "uid-r") + "record-"
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, prefix+"0000000001-0000000001", []byte("no gzip")))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "unreadable record")
	require.Contains(t, r.Status.FailureReason, mayBePaused)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	require.Equal(t, "default", mark.PausedLocation(r))
}

// The records of a dead runner are read although this one can write none.
func TestASuccessorThatCannotWriteResumesWhatADeadRunnerPaused(t *testing.T) {
	b := orphanedPaused(t)
	b.locations.store = objectstore.ReadOnly(b.store)
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.True(t, r.Status.Phase.Terminal())
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	require.Empty(t, mark.PausedLocation(r))
}

// Objects that cannot be resumed are named in the failure reason and the log.
func TestWhatCannotBeResumedIsNamed(t *testing.T) {
	const still = "still paused: gadgets.example.com a/g"
	t.Run("cancelled", func(t *testing.T) {
		b := orphanedPaused(t)
		b.requestCancel(t, false)
		b.forbidResuming()
		require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
		r := b.getRestore(t)
		require.Equal(t, "cancelled by alice; "+still, r.Status.FailureReason)
		require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), still)
		require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "gadgets.example.com a/g is still paused")
		require.Equal(t, "default", mark.PausedLocation(r))
	})
	t.Run("failed", func(t *testing.T) {
		b := orphanedPaused(t)
		b.deleteBackup(t)
		b.forbidResuming()
		require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
		require.Contains(t, b.getRestore(t).Status.FailureReason, `"b" not found; `+still)
	})
	t.Run("otherwise restored", func(t *testing.T) {
		b := orphanedPaused(t)
		b.forbidResuming()
		require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
		r := b.getRestore(t)
		require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
		require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "gadgets.example.com a/g is still paused")
		require.Equal(t, "default", mark.PausedLocation(r))
	})
}

// A successor finds the records by the mark alone; it is written before anything is paused, and
// removed once everything is resumed.
func TestTheMarkIsThereWhileObjectsArePaused(t *testing.T) {
	b := newScene(t, "")
	var mu sync.Mutex
	var at []string
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "g" {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, mark.PausedLocation(b.getRestore(t)))
		}
		return refuseAdmission(r, body)
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, []string{"default"}, at)
	require.NotContains(t, b.getRestore(t).Annotations, "holdfast.io/paused")
}

func TestARestoreThatIsGivenUpResumesWhatWasPaused(t *testing.T) {
	b := orphanedPaused(t)
	b.panickingRuns(t, func() { panic("a defect") })
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "internal error", r.Status.FailureReason)
	require.Equal(t, object{"size": 1.0}, b.readGadget())
	require.Empty(t, mark.PausedLocation(r))
}

func TestARestoreThatPanicsWhileItIsGivenUpSaysWhatIsPaused(t *testing.T) {
	b := orphanedPaused(t)
	defect := func() { panic("a defect") }
	b.panickingRuns(t, defect)
	b.locations.err, b.locations.failed = noSuchHost(), defect
	require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, "internal error; "+mayBePaused, r.Status.FailureReason)
	require.Equal(t, "default", mark.PausedLocation(r))
}

// The restore ended by another hand before its run panicked.
func TestAPanicIsNotWrittenOverATerminalPhase(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 1)
	b.createRestore(t, true)
	b.locations.err, b.locations.failed = noSuchHost(), func() {
		ended := b.getRestore(t)
		ended.Status.Phase = velerov1.RestorePhaseCompleted
		require.NoError(t, b.client.Update(t.Context(), ended))
		panic("a defect")
	}
	require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	require.Empty(t, b.ended)
}

// No process can take it: what is paused is left to the task that resumes without a claim.
func TestAnUnreadableClaimSaysThatObjectsMayBePaused(t *testing.T) {
	b := newBench(t)
	b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Status.Phase = velerov1.RestorePhaseInProgress
		require.NoError(t, mark.SetPaused(r, "default"))
		r.Annotations[holdfast.AnnotationClaim] = "no JSON"
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Contains(t, b.getRestore(t).Status.FailureReason, "; "+mayBePaused)
	require.Equal(t, "default", mark.PausedLocation(b.getRestore(t)))
}
