package job

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// vanishing is a bucket whose answers stop with the commit: the metadata file is created, and no
// call returns it while gone is set.
type vanishing struct {
	objectstore.Store
	gone bool
}

var errGone = errors.New("connection reset by peer")

func (v *vanishing) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	if v.gone {
		return errGone
	}
	err := v.Store.Create(ctx, key, r, size)
	if key == layout.BackupMetadata("b1") {
		v.gone = true
		return errGone
	}
	return err
}

func (v *vanishing) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if v.gone {
		return nil, errGone
	}
	return v.Store.Get(ctx, key)
}

func (w *world) requireHandedOver(t *testing.T, b *velerov1.Backup) {
	t.Helper()
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase, got.Status.FailureReason)
	c, _, err := claim.Parse(got)
	require.NoError(t, err)
	require.Empty(t, c.Owner)
}

func TestALostAnswerToTheCommitIsReadLater(t *testing.T) {
	w := newWorld(t)
	bucket := &vanishing{Store: w.store}
	w.Locations, w.StorePatience = locations{bucket}, 0
	b := w.admitBackup(t, "b1")
	require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), errGone)
	w.requireHandedOver(t, b)
	require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), errGone, "the next holder cannot read it yet")
	w.requireHandedOver(t, b)
	w.Locations = unreachable{locations{bucket}}
	require.Error(t, w.Run(t.Context(), "b1", b.UID))
	w.requireHandedOver(t, b)
	bucket.gone, w.Locations = false, locations{bucket}
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

// defectiveCluster and defectiveLocations panic once they are used.
type defectiveCluster struct{ Cluster }

func (defectiveCluster) Discover(context.Context) (*resource.Catalog, error) { panic("no catalog") }

type defectiveLocations struct{ Locations }

func (defectiveLocations) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	panic("no location")
}

// panickingRuns are three runs of a backup that panic.
func (w *world) panickingRuns(t *testing.T, b *velerov1.Backup) {
	t.Helper()
	for n := range 3 {
		require.ErrorIs(t, w.Run(t.Context(), b.Name, b.UID), engine.ErrInternal)
		c, _, err := claim.Parse(w.readBackup(t, b))
		require.NoError(t, err)
		require.Equal(t, n+1, c.Panics)
		require.Empty(t, c.Owner)
	}
}

// requireGivenUp checks a backup that failed after panics, in the bucket first if that is to say so.
func (w *world) requireGivenUp(t *testing.T, b *velerov1.Backup, inBucket bool) {
	t.Helper()
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, "internal error", got.Status.FailureReason)
	require.Equal(t, []string{"Failed"}, w.events.phases[len(w.events.phases)-1:])
	data, ok := w.store.Bytes(layout.BackupMetadata("b1"))
	require.Equal(t, inBucket, ok)
	if inBucket {
		require.Contains(t, string(data), `"Failed"`)
	}
}

func TestPanicsEndTheBackup(t *testing.T) {
	t.Run("in the work", func(t *testing.T) {
		w := newWorld(t)
		w.Cluster = defectiveCluster{w.Cluster}
		b := w.admitBackup(t, "b1")
		w.panickingRuns(t, b)
		require.NoError(t, w.Run(t.Context(), "b1", b.UID))
		w.requireGivenUp(t, b, true)
	})
	t.Run("where nobody knows what the bucket says", func(t *testing.T) {
		w := newWorld(t)
		w.Locations = defectiveLocations{w.Locations}
		b := w.admitBackup(t, "b1")
		w.panickingRuns(t, b)
		require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), engine.ErrInternal, "as it is given up")
		require.NoError(t, w.Run(t.Context(), "b1", b.UID))
		w.requireGivenUp(t, b, false)
	})
	t.Run("in a worker that stored objects before", func(t *testing.T) {
		w := newWorld(t)
		var once sync.Once
		w.store.Inject(func(op memstore.Op, key string) error {
			if op == memstore.OpCreate && strings.HasSuffix(key, "/composition") {
				once.Do(func() { panic("no composition") })
			}
			return nil
		})
		b := w.admitBackup(t, "b1")
		require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), engine.ErrInternal)
		require.NoError(t, w.Run(t.Context(), "b1", b.UID))
		w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	})
	t.Run("after the commit", func(t *testing.T) {
		w := newWorld(t)
		w.store.Inject(func(op memstore.Op, _ string) error {
			if op == memstore.OpDelete {
				panic("no deletion")
			}
			return nil
		})
		b := w.admitBackup(t, "b1")
		require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), engine.ErrInternal)
		require.Equal(t, velerov1.BackupPhaseCompleted, w.readBackup(t, b).Status.Phase)
	})
}

// defectiveLedger panics when it is asked whether a backup was admitted.
type defectiveLedger struct{ Ledger }

func (defectiveLedger) Get(context.Context, types.UID) (ledger.Entry, bool, error) {
	panic("no entry")
}

func TestPanicsInTheAdmissionEndTheBackup(t *testing.T) {
	for name, begun := range map[string]bool{"before its begin": false, "after its begin": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var adjust []func(*velerov1.Backup)
			if begun {
				adjust = append(adjust, abandonBackup)
			}
			b := w.admitBackup(t, "b1", adjust...)
			w.Ledger = defectiveLedger{w.Ledger}
			w.panickingRuns(t, b)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			w.requireGivenUp(t, b, begun)
		})
	}
}

func damagedAnnotation(text string) func(b *velerov1.Backup) {
	return func(b *velerov1.Backup) {
		abandonBackup(b)
		b.Annotations[holdfast.AnnotationClaim] = text
	}
}

func TestADamagedClaimEndsTheBackup(t *testing.T) {
	for _, text := range []string{"", `{"holder":`, `{"holder":"dead","epoch":0}`} {
		t.Run(text, func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1", damagedAnnotation(text))
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Contains(t, got.Status.FailureReason, "annotation holdfast.io/claim")
			require.NotNil(t, got.Status.CompletionTimestamp)
			require.Equal(t, []string{"Failed"}, w.events.phases)
			require.Empty(t, w.store.Keys())
		})
	}
}

func TestAClaimRepairedMeanwhileIsTaken(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1", damagedAnnotation("x"))
	var once sync.Once
	w.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			once.Do(func() {
				now := w.readBackup(t, b)
				require.NoError(t, claim.Set(now, claim.Claim{Owner: "dead", Epoch: 7}))
				require.NoError(t, c.Update(ctx, now))
			})
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}
