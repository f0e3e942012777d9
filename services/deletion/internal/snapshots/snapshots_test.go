package snapshots_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is a provider with snapshots, behind two locations.
type cloud struct {
	action.VolumeSnapshotter // nothing else is asked

	mu     sync.Mutex
	has    map[string]bool
	calls  []string
	refuse map[string]error
	opened int
	ended  int
	after  int // that many calls then is called
	then   func()
}

func (c *cloud) Open(_ context.Context, location string) (action.VolumeSnapshotter, error) {
	if location != "here" {
		return nil, fmt.Errorf("VolumeSnapshotLocation %q: not found", location)
	}
	return c, nil
}

func (c *cloud) Close() error { return nil }

func (c *cloud) DeleteSnapshot(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, id)
	if len(c.calls) > c.after && c.then != nil {
		c.then()
	}
	if err := c.refuse[id]; err != nil {
		return err
	}
	if !c.has[id] {
		return errors.New("no such snapshot")
	}
	delete(c.has, id)
	return nil
}

type bed struct {
	cloud *cloud
	store *memstore.Store
	r     *snapshots.Remover
	tries int
	lost  atomic.Bool
}

var errLost = errors.New("lost")

func newBed(t *testing.T, list ...nativesnapshot.Snapshot) *bed {
	t.Helper()
	b := &bed{cloud: &cloud{has: map[string]bool{}, refuse: map[string]error{}}, store: memstore.New()}
	for _, s := range list {
		b.cloud.has[s.Status.ProviderSnapshotID] = true
	}
	var file bytes.Buffer
	zip := gzip.NewWriter(&file)
	require.NoError(t, json.NewEncoder(zip).Encode(list))
	require.NoError(t, zip.Close())
	require.NoError(t, objectstore.CreateBytes(t.Context(), b.store, layout.BackupVolumeSnapshots("b"), file.Bytes()))
	b.r = &snapshots.Remover{Log: slog.New(slog.DiscardHandler), Open: func(context.Context, *slog.Logger) (snapshots.Locations, func()) {
		b.cloud.opened++
		return b.cloud, func() { b.cloud.ended++ }
	}}
	return b
}

func (b *bed) runAttempt(ctx context.Context) error {
	b.tries++
	return b.r.Run(ctx, snapshots.Job{
		Backup: "b", UID: "uid", Attempt: fmt.Sprintf("try-%d", b.tries), Store: b.store,
		Confirm: func(context.Context) error {
			if b.lost.Load() {
				return errLost
			}
			return nil
		},
	})
}

func (b *bed) askedIDs() []string {
	calls := b.cloud.calls
	b.cloud.calls = nil
	slices.Sort(calls)
	return calls
}

func newSnapshot(location, id string) nativesnapshot.Snapshot {
	return nativesnapshot.Snapshot{
		Spec:   nativesnapshot.Spec{Location: location, PersistentVolumeName: "pv-" + id},
		Status: nativesnapshot.Status{ProviderSnapshotID: id, Phase: nativesnapshot.PhaseCompleted},
	}
}

func TestEverySnapshotIsDeleted(t *testing.T) {
	t.Parallel()
	failed := newSnapshot("here", "")
	b := newBed(t, newSnapshot("here", "one"), newSnapshot("here", "two"), failed)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"one", "two"}, b.askedIDs())
	require.Equal(t, []int{1, 1}, []int{b.cloud.opened, b.cloud.ended})
	// The data of the backup may stay for another reason.
	require.NoError(t, b.runAttempt(t.Context()))
	require.Empty(t, b.askedIDs())
	require.Equal(t, 1, b.cloud.opened)
}

func TestAnotherAttemptDoesOnlyWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := newBed(t, newSnapshot("here", "one"), newSnapshot("here", "two"), newSnapshot("there", "three"))
	b.cloud.refuse["two"] = errors.New("the array is rebooting")
	err := b.runAttempt(t.Context())
	require.ErrorContains(t, err, `snapshot "two" of volume "pv-two": the array is rebooting`)
	require.ErrorContains(t, err, `snapshot "three" of volume "pv-three": VolumeSnapshotLocation "there": not found`)
	require.Equal(t, []string{"one", "two"}, b.askedIDs())

	delete(b.cloud.refuse, "two")
	require.ErrorContains(t, b.runAttempt(t.Context()), "not found")
	require.Equal(t, []string{"two"}, b.askedIDs())
	require.Error(t, b.runAttempt(t.Context()))
	require.Empty(t, b.askedIDs())
}

func TestNothingIsDeletedWithoutTheClaim(t *testing.T) {
	t.Parallel()
	b := newBed(t, newSnapshot("here", "one"))
	b.lost.Store(true)
	require.ErrorIs(t, b.runAttempt(t.Context()), errLost)
	require.Empty(t, b.askedIDs())
}

func TestBackupsWithoutSnapshotsStartNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t) // the list is null, as Velero writes it
	require.NoError(t, b.runAttempt(t.Context()))
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupVolumeSnapshots("b")))
	require.NoError(t, b.runAttempt(t.Context()))
	require.Zero(t, b.cloud.opened)
}

func TestADamagedListKeepsTheBackup(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupVolumeSnapshots("b")))
	require.NoError(t, objectstore.CreateBytes(t.Context(), b.store, layout.BackupVolumeSnapshots("b"), []byte("no gzip")))
	require.ErrorIs(t, b.runAttempt(t.Context()), nativesnapshot.ErrMalformed)
}

func TestADamagedRecordIsLeftOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, newSnapshot("here", "one"))
	require.NoError(t, objectstore.CreateBytes(t.Context(), b.store, layout.DeletionSnapshots("b", "uid")+"old", []byte("{")))
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"one"}, b.askedIDs())
}

// A process that dies leaves recorded what it deleted in the batches before.
func TestWhatWasDeletedIsRecordedOnTheWay(t *testing.T) {
	t.Parallel()
	var list []nativesnapshot.Snapshot
	for i := range 70 {
		list = append(list, newSnapshot("here", fmt.Sprintf("s%02d", i)))
	}
	b := newBed(t, list...)
	b.cloud.after = 64
	b.cloud.then = func() { b.lost.Store(true) } // nothing more is written
	require.ErrorIs(t, b.runAttempt(t.Context()), errLost)
	first := b.askedIDs()
	require.GreaterOrEqual(t, len(first), 65)
	require.Less(t, len(first), 70)

	b.lost.Store(false)
	for i := range list {
		b.cloud.has[list[i].Status.ProviderSnapshotID] = true
	}
	b.cloud.then = nil
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"s64", "s65", "s66", "s67", "s68", "s69"}, b.askedIDs())
}

// A snapshotter that hangs holds up only as many deletions as may use its location.
func TestOnlySoManyDeletionsUseOneLocation(t *testing.T) {
	t.Parallel()
	b := newBed(t, newSnapshot("there", "one"), newSnapshot("here", "two"), newSnapshot("here", "three"))
	b.r.Plugins = &itemaction.PluginLimit{Deletions: 1}
	hung := b.r.Plugins.OpenUse()
	require.NoError(t, hung.AddPlugin(`VolumeSnapshotLocation "here"`))
	err := b.runAttempt(t.Context())
	require.ErrorIs(t, err, itemaction.ErrBusy)
	require.EqualError(t, err, `VolumeSnapshotLocation "here": works for other deletions`)
	require.Zero(t, b.cloud.opened)

	other := newBed(t, newSnapshot("there", "four"))
	other.r.Plugins = b.r.Plugins
	require.NotErrorIs(t, other.runAttempt(t.Context()), itemaction.ErrBusy, "other locations are not waited for")

	hung.Close()
	b.cloud.then = func() {
		assert.ErrorIs(t, b.r.Plugins.OpenUse().AddPlugin(`VolumeSnapshotLocation "here"`), itemaction.ErrBusy)
	}
	require.ErrorContains(t, b.runAttempt(t.Context()), `VolumeSnapshotLocation "there": not found`)
	require.Equal(t, []string{"three", "two"}, b.askedIDs())
	require.NoError(t, b.r.Plugins.OpenUse().AddPlugin(`VolumeSnapshotLocation "here"`), "an attempt that ended does not count")
}

func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	var list []nativesnapshot.Snapshot
	for i := range 70 {
		list = append(list, newSnapshot("there", fmt.Sprintf("s%02d", i)))
	}
	failed := new(itemaction.FailedError)
	require.ErrorAs(t, newBed(t, list...).runAttempt(t.Context()), &failed)
	require.Len(t, failed.Errs, 20)
	require.Equal(t, 50, failed.More)
}
