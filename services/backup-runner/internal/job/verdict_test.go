package job

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// vanishing is a bucket whose answers stop with the commit: the metadata file is
// created, and nobody hears of it while gone is set.
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
	got := w.read(t, b)
	require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase, got.Status.FailureReason)
	c, _, err := claim.Parse(got)
	require.NoError(t, err)
	require.Empty(t, c.Holder)
}

func TestALostAnswerToTheCommitIsReadLater(t *testing.T) {
	w := newWorld(t)
	bucket := &vanishing{Store: w.store}
	w.Locations, w.StorePatience = locations{bucket}, 0
	b := w.admit(t, "b1")
	require.ErrorContains(t, w.Run(t.Context(), "b1", b.UID), errGone.Error())
	w.requireHandedOver(t, b)
	require.ErrorContains(t, w.Run(t.Context(), "b1", b.UID), errGone.Error(), "the next holder cannot read it yet")
	w.requireHandedOver(t, b)
	w.Locations = unreachable{locations{bucket}}
	require.ErrorContains(t, w.Run(t.Context(), "b1", b.UID), "no such host")
	w.requireHandedOver(t, b)
	bucket.gone, w.Locations = false, locations{bucket}
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}
