package job

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// requestCancel writes a request to cancel on the backup; with told set, the guard gets it at once.
func (w *world) requestCancel(t *testing.T, b *velerov1.Backup, told bool) {
	t.Helper()
	asked := w.readBackup(t, b)
	require.NoError(t, mark.WriteCancelRequest(asked, mark.CancelRequest{By: "alice"}))
	require.NoError(t, w.client.Update(t.Context(), asked))
	if told {
		w.instance.Show(asked)
	}
}

// requireCancelled checks a backup that ended by the request, in bucket and cluster. Log and
// results explain it unless they were published before.
func (w *world) requireCancelled(t *testing.T, b *velerov1.Backup, explained bool) {
	t.Helper()
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
	require.NotNil(t, got.Status.CompletionTimestamp)
	require.False(t, mark.IsCommitting(got))
	data, ok := w.store.Bytes(layout.BackupMetadata(b.Name))
	require.True(t, ok, "the bucket decides")
	var committed velerov1.Backup
	require.NoError(t, json.Unmarshal(data, &committed))
	require.Equal(t, got.Status, committed.Status)
	if explained {
		require.Contains(t, w.readDocument(t, layout.BackupLog(b.Name)), "cancelled by alice")
		require.Contains(t, w.readDocument(t, layout.BackupResults(b.Name)), "cancelled by alice")
	}
	for _, key := range w.store.Keys() {
		require.NotContains(t, key, "/parts/", "swept")
	}
}

// beforeObject calls do once, before the object whose key ends so is created.
func (w *world) beforeObject(suffix string, do func()) {
	var once sync.Once
	w.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.HasSuffix(key, suffix) {
			once.Do(do)
		}
		return nil
	})
}

func TestACancelledBackupStops(t *testing.T) {
	for name, suffix := range map[string]string{
		"while it reserves": "holdfast-owner.json", "while a part is stored": ".sidecar", "before the composition": "/composition",
		"while it publishes": "manifest.json.gz", "at the last file": "-logs.gz",
	} {
		published := strings.HasSuffix(suffix, ".gz") // as good as: this bucket does not mind the end of a context
		for _, told := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, seen by the guard: %v", name, told), func(t *testing.T) {
				w := newWorld(t)
				b := w.admitBackup(t, "b1")
				w.beforeObject(suffix, func() { w.requestCancel(t, b, told) })
				require.NoError(t, w.Run(t.Context(), "b1", b.UID))
				w.requireCancelled(t, b, told && !published)
				require.Contains(t, w.readMetrics(t), `velero_backup_failure_total{schedule=""} 1`)
			})
		}
	}
}

// The commit has begun: the request has no effect, neither in this holder nor in a successor.
func TestARequestAfterTheCommitBeganIsTooLate(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	w.beforeObject("velero-backup.json", func() {
		require.True(t, mark.IsCommitting(w.readBackup(t, b)))
		w.requestCancel(t, b, true)
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	require.False(t, mark.IsCommitting(got), "nothing is left of the mark")

	w = newWorld(t)
	b = w.admitBackup(t, "b1", abandonBackup, func(b *velerov1.Backup) {
		require.NoError(t, mark.SetCommitting(b, 1))
		b.Annotations[holdfast.AnnotationCancel] = "alice"
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

// A holder that takes over from one that died, or handed over, stops the backup.
func TestASuccessorHeedsTheRequest(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1", abandonBackup, func(b *velerov1.Backup) { b.Annotations[holdfast.AnnotationCancel] = "alice" })
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireCancelled(t, b, true)
}

func TestABackupCancelledBeforeItStartedIsNotBegun(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1", func(b *velerov1.Backup) { b.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"} })
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
	require.Nil(t, got.Status.StartTimestamp)
	_, claimed, err := claim.Parse(got)
	require.NoError(t, err)
	require.False(t, claimed)
	require.Empty(t, w.store.Keys())
}

// askedAt requests to cancel when the location is opened, which does not succeed.
type askedAt struct {
	locations
	ask func()
}

func (a askedAt) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	a.ask()
	return nil, &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}
}

// While nothing in the bucket can be the backup's, it ends without the bucket.
func TestACancelledBackupDoesNotWaitForItsLocation(t *testing.T) {
	w := newWorld(t)
	w.StorePatience = time.Hour
	b := w.admitBackup(t, "b1")
	var once sync.Once
	w.Locations = askedAt{locations{w.store}, func() { once.Do(func() { w.requestCancel(t, b, true) }) }}
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "cancelled by alice", got.Status.FailureReason)
}

// A cancelled backup waits for no bucket that is away: without the mark of a commit it holds no other
// end than Failed.
func TestACancelledBackupEndsWithoutItsBucket(t *testing.T) {
	for name, refuse := range map[string]func(w *world){
		"it cannot be opened": func(w *world) { w.Locations = unreachable{locations{w.store}} },
		"it does not answer": func(w *world) {
			w.store.Inject(func(memstore.Op, string) error { return errGone })
		},
		"it refuses": func(w *world) {
			w.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.StorePatience = 0
			b := w.admitBackup(t, "b1", abandonBackup, func(b *velerov1.Backup) { b.Annotations[holdfast.AnnotationCancel] = "alice" })
			refuse(w)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Contains(t, got.Status.FailureReason, "cancelled by alice; the bucket could not be written: ")
			require.True(t, mark.PostHooksOf(got).Owed)
		})
	}
}
