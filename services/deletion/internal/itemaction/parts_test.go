package itemaction

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

// A backup that failed or was cancelled before it was composed has no tarball: what actions made
// for its objects outside the cluster stays there indefinitely.
func TestTheObjectsOfABackupThatWasNeverComposedAreShown(t *testing.T) {
	b := newBed(t)
	b.parts = true
	backuptest.WritePart(t, b.store, "b", 1, 0, podItems("o", "p")...)
	backuptest.WritePart(t, b.store, "b", 1, 1, podItems("q")...)
	x := b.registerAction("a.io/x", everything, failForObject("Pod a/p", errBoom))
	b.registerAction("b.io/a", everything, nil)
	require.ErrorIs(t, b.runAttempt(t.Context()), errBoom)
	require.Equal(t, []string{
		"a.io/x Pod a/q", "b.io/a Pod a/q", "a.io/x Pod a/o", "b.io/a Pod a/o", "a.io/x Pod a/p",
	}, b.takeNotes())
	x.do = nil
	require.NoError(t, b.runNextAttempt())
	require.Equal(t, []string{"a.io/x Pod a/p", "b.io/a Pod a/p"}, b.takeNotes(), "what was done is known")
}

// A unit that was collected again after a takeover leaves two parts with the same objects.
func TestAnObjectInSeveralPartsIsShownOnceAsItWasStoredLast(t *testing.T) {
	b := newBed(t)
	b.parts = true
	old, later := podItems("o")[0], podItems("o")[0]
	old.Labels, later.Labels = map[string]string{"v": "1"}, map[string]string{"v": "10"}
	for _, epoch := range []int64{1, 2, 9} {
		backuptest.WritePart(t, b.store, "b", epoch, 0, old)
	}
	backuptest.WritePart(t, b.store, "b", 10, 0, later)
	b.registerAction("a.io/x", everything, nil)
	selector := everything
	selector.Labels = "v=1"
	b.registerAction("b.io/a", selector, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"a.io/x Pod a/o", "b.io/a Pod a/o"}, b.takeNotes())

	b = newBed(t)
	b.parts = true
	backuptest.WritePart(t, b.store, "b", 9, 0, old)
	backuptest.WritePart(t, b.store, "b", 10, 0, later)
	selector.Labels = "v=10"
	b.registerAction("b.io/a", selector, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"b.io/a Pod a/o"}, b.takeNotes())
}

// With a tarball the parts are what its composition was made of, or has superseded.
func TestPartsBesideATarballAreNotRead(t *testing.T) {
	b := newBed(t)
	b.parts = true
	backuptest.Write(t, b.store, "b", podItems("o")...)
	backuptest.WritePart(t, b.store, "b", 1, 0, podItems("superseded")...)
	b.registerAction("a.io/x", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"a.io/x Pod a/o"}, b.takeNotes())
}

func TestADamagedPartKeepsTheBackupAndTheOthersAreShown(t *testing.T) {
	b := newBed(t)
	b.parts = true
	backuptest.WritePart(t, b.store, "b", 1, 0, podItems("o")...)
	key := backuptest.WritePart(t, b.store, "b", 1, 1, podItems("p")...)
	b.store.Set(key, []byte("no gzip"))
	b.registerAction("a.io/x", everything, nil)
	texts := errorMessages(t, b.runAttempt(t.Context()))
	require.Len(t, texts, 1)
	require.Contains(t, texts[0], "corrupt tarball")
	require.Equal(t, []string{"a.io/x Pod a/o"}, b.takeNotes())
}

func TestWithoutTarballAndPartsNothingIsAsked(t *testing.T) {
	b := newBed(t)
	b.parts = true
	b.store.Set(layout.Checkpoint("b", "uid-b", 1, 1), []byte("{}"))
	b.store.Set(layout.Part("b", "uid-of-another", 1, "u", 0, 0), []byte("x"))
	f := b.registerAction("a.io/x", everything, nil)
	f.unable = errBoom
	require.NoError(t, b.runAttempt(t.Context()))
	b.injectFault(memstore.OpList, "/parts/", errStore)
	require.ErrorIs(t, b.runAttempt(context.WithoutCancel(t.Context())), errStore)
}

// The tarball of a completed backup goes first: an attempt that continues afterwards would read
// parts that the backup was not made of.
func TestPartsOfACompletedBackupAreNotRead(t *testing.T) {
	b := newBed(t)
	backuptest.WritePart(t, b.store, "b", 1, 0, podItems("superseded")...)
	b.registerAction("a.io/x", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Empty(t, b.takeNotes())
}
