package finalize_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// holder holds one object; it is asked to stop once asked is set.
type holder struct {
	object  *velerov1.Backup
	asked   *mark.CancelError
	settled *velerov1.Backup
}

func (h *holder) Confirm(ctx context.Context) error { return context.Cause(ctx) }

func (h *holder) Present(ctx context.Context) error { return context.Cause(ctx) }

func (h *holder) BeginCommit(context.Context) error { return mark.SetCommitting(h.object, 1) }

func (h *holder) Finish(_ context.Context, final *velerov1.Backup, _ finalize.Contents) error {
	h.settled = final
	return nil
}

func (h *holder) Cancelling() context.Context { return context.Background() }

func (h *holder) Cancelled() *mark.CancelError { return h.asked }

// newBackupBucket is one of a backup of several holders: each has a log of records, given here.
func newBackupBucket(t *testing.T, holders ...[]checkpoint.Record) *memstore.Store {
	t.Helper()
	store := memstore.New()
	for i, records := range holders {
		log, err := checkpoint.Open(t.Context(), store, "b", "u", int64(i+1))
		require.NoError(t, err)
		for _, rec := range records {
			_, err := log.Append(t.Context(), rec)
			require.NoError(t, err)
		}
	}
	return store
}

func newState(t testing.TB, store objectstore.Store, log *bytes.Buffer) *finalize.State {
	t.Helper()
	start := metav1.NewTime(time.Unix(1700000000, 0))
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}}
	b.Status.StartTimestamp = &start
	b.Spec.VolumeSnapshotLocations = []string{"disks"}
	s := finalize.New(finalize.Job{Backup: b, Epoch: 1, Cluster: "c", Holder: &holder{object: b.DeepCopy()}, Store: store, Dir: t.TempDir(),
		Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(log, nil)), Canceller: new(jobtest.Cancels).Canceller()})
	t.Cleanup(s.Close)
	return s
}
