package maintain_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/maintenance"
	"github.com/kopia/kopia/repo/object"
	"github.com/kopia/kopia/snapshot"
	"github.com/kopia/kopia/snapshot/snapshotmaintenance"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/maintain"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/restore"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/upload"
)

const day = 24 * time.Hour

// bed is a bucket with a repository, in which time passes as a test says.
type bed struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	store *memstore.Store
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)), store: memstore.New()}
	b.store.Clock = b.clock
	return b
}

// open opens the repository as another process does.
func (b *bed) open() *repository.Repository {
	b.t.Helper()
	r, err := repository.Create(b.t.Context(), b.store, repository.Options{
		Namespace: "app", Password: "secret", Dir: b.t.TempDir(), Fatal: func(err error) { b.t.Error(err) }, Now: b.clock.Now,
	})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = r.Close(context.WithoutCancel(b.t.Context())) })
	return r
}

// newVolume makes a directory with a file of random content.
func (b *bed) newVolume(size int) string {
	b.t.Helper()
	dir, data := b.t.TempDir(), make([]byte, size)
	_, _ = rand.Read(data)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, "file"), data, 0o600))
	return dir
}

func sourceOf(claim string) repository.Source {
	return repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: claim, ClaimUID: claim}
}

// runUpload stores a volume of a claim.
func (b *bed) runUpload(ctx context.Context, r *repository.Repository, dir, claim string) outcome.Result {
	return upload.Run(ctx, r, upload.Spec{
		Path: dir, Parallel: 1, CheckpointInterval: time.Minute, Clock: b.clock, Source: sourceOf(claim),
	}, &outcome.Recorder{})
}

// upload stores a volume of a claim and returns the ID of the snapshot.
func (b *bed) upload(r *repository.Repository, dir, claim string) string {
	b.t.Helper()
	result := b.runUpload(b.t.Context(), r, dir, claim)
	require.Equal(b.t, outcome.Completed, result.Phase, result.Message)
	return result.SnapshotID
}

// requireRestored checks that a snapshot has what its volume has.
func (b *bed) requireRestored(id, dir string) {
	b.t.Helper()
	target := b.t.TempDir()
	result := restore.Run(b.t.Context(), b.open(), restore.Spec{SnapshotID: id, Path: target, Parallel: 1}, &outcome.Recorder{})
	require.Equal(b.t, outcome.Completed, result.Phase, result.Message)
	want, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(b.t, err)
	have, err := os.ReadFile(filepath.Join(target, "file"))
	require.NoError(b.t, err)
	require.Equal(b.t, want, have)
}

func (b *bed) maintain(change ...func(*maintain.Spec)) outcome.Result {
	b.t.Helper()
	s := maintain.Spec{Location: b.store, Namespace: "app", Holder: "a", Mode: maintain.ModeAuto, FullInterval: day, Clock: b.clock}
	for _, c := range change {
		c(&s)
	}
	return maintain.Run(b.t.Context(), b.open(), s)
}

// pass has days pass with a run every twelve hours, and returns the result of the last one.
func (b *bed) pass(days int) (last outcome.Result) {
	b.t.Helper()
	for range 2 * days {
		b.clock.Step(12 * time.Hour)
		last = b.maintain()
		require.Equal(b.t, outcome.Completed, last.Phase, last.Message)
		require.Empty(b.t, last.Message)
	}
	return last
}

// size is what the bucket holds of the repository.
func (b *bed) size() (bytes int64) {
	b.t.Helper()
	require.NoError(b.t, b.store.List(b.t.Context(), "kopia/", func(i objectstore.Info) error { bytes += i.Size; return nil }))
	return bytes
}

// TestTheBucketHoldsWhatIsLeft checks that space comes back after the deletion of snapshots, not at once but in
// days, with everything else whole, and that the repository is found empty in the end.
func TestTheBucketHoldsWhatIsLeft(t *testing.T) {
	const mib = 1 << 20
	b := newBed(t)
	kept, gone := b.newVolume(2*mib), b.newVolume(24*mib)
	keptID, goneID := b.upload(b.open(), kept, "kept"), b.upload(b.open(), gone, "gone")
	require.False(t, b.pass(2).Empty)
	require.Greater(t, b.size(), int64(26*mib))
	require.NoError(t, b.open().ForgetSnapshots(t.Context(), []string{goneID}))
	require.False(t, b.pass(1).Empty)
	require.Greater(t, b.size(), int64(26*mib), "one cycle may race with an upload")
	require.False(t, b.pass(3).Empty)
	require.Less(t, b.size(), int64(8*mib), "kopia may have put the last of both into one pack, which stays")
	b.requireRestored(keptID, kept)

	require.NoError(t, b.open().ForgetSnapshots(t.Context(), []string{keptID}))
	empty := false
	for range 6 {
		empty = empty || b.passFull().Empty
	}
	require.True(t, empty)
	require.Less(t, b.size(), int64(mib)/4)
}

// passFull has a day pass, and a full run.
func (b *bed) passFull() outcome.Result {
	b.t.Helper()
	b.clock.Step(day)
	result := b.maintain()
	require.Equal(b.t, outcome.Completed, result.Phase, result.Message)
	return result
}

// TestALiveUploadLosesNothing checks that content which an upload takes over from a snapshot survives, although that
// snapshot is forgotten and maintained away before the upload has ended.
func TestALiveUploadLosesNothing(t *testing.T) {
	b := newBed(t)
	volume := b.newVolume(1 << 20)
	old := b.upload(b.open(), volume, "data")
	b.pass(2)
	require.NoError(t, os.WriteFile(filepath.Join(volume, "new"), []byte("new"), 0o600))
	var begun atomic.Bool
	b.store.Inject(func(op memstore.Op, key string) error {
		// The upload has taken the file from the snapshot, and has yet to store its own.
		if op == memstore.OpPut && strings.HasPrefix(key, "kopia/app/p") && !begun.Swap(true) {
			require.NoError(t, b.open().ForgetSnapshots(t.Context(), []string{old}))
			b.passFull()
		}
		return nil
	})
	id := b.upload(b.open(), volume, "data")
	require.True(t, begun.Load())
	b.store.Inject(nil)
	b.pass(5)
	b.requireRestored(id, volume)
}

// TestAFullRunThatFailsMergesIndexes checks that a snapshot which lacks data, so that nothing may be removed, keeps no
// quick run from its work.
func TestAFullRunThatFailsMergesIndexes(t *testing.T) {
	b := newBed(t)
	r := b.open()
	lost, err := object.ParseID("k0123456789abcdef0123456789abcdef")
	require.NoError(t, err)
	require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
		_, err := r.SaveSnapshot(ctx, w, sourceOf("data"), &snapshot.Manifest{
			Source: sourceOf("data").Info(), RootEntry: &snapshot.DirEntry{Type: snapshot.EntryTypeDirectory, ObjectID: lost},
		})
		return err
	}))
	result := b.maintain()
	require.Equal(t, outcome.Failed, result.Phase)
	require.Contains(t, result.Message, "unable to find in-use content ID")
	schedule, err := maintenance.GetSchedule(t.Context(), b.open().Repository.(repo.DirectRepository))
	require.NoError(t, err)
	require.NotEmpty(t, schedule.Runs[maintenance.TaskEpochAdvance])
}

// maintainForeign runs maintenance as Velero does.
func (b *bed) maintainForeign() {
	b.t.Helper()
	direct := b.open().Repository.(repo.DirectRepository)
	require.NoError(b.t, repo.DirectWriteSession(b.t.Context(), direct, repo.WriteSessionOptions{}, func(ctx context.Context, w repo.DirectRepositoryWriter) error {
		return snapshotmaintenance.Run(ctx, w, maintenance.ModeQuick, false, maintenance.SafetyFull)
	}))
}

// TestAForeignRunIsReportedOnce checks that another program stops a run, and that the next one goes on unless that
// program does too.
func TestAForeignRunIsReportedOnce(t *testing.T) {
	b := newBed(t)
	require.Equal(t, outcome.Result{Phase: outcome.Completed, Empty: true}, b.maintain())
	for range 2 {
		b.clock.Step(time.Hour)
		b.maintainForeign()
		at := b.clock.Now().UTC().Format(time.RFC3339)
		b.clock.Step(time.Minute)
		result := b.maintain()
		require.Equal(t, outcome.Failed, result.Phase)
		require.Equal(t, at, result.Foreign)
		require.Contains(t, result.Message, at)
		b.clock.Step(time.Hour)
		require.Equal(t, outcome.Result{Phase: outcome.Completed}, b.maintain())
	}
}

// TestARepositoryThatWasMaintainedBeforeIsLookedAtFirst checks what follows a migration from Velero.
func TestARepositoryThatWasMaintainedBeforeIsLookedAtFirst(t *testing.T) {
	b := newBed(t)
	b.maintainForeign()
	b.clock.Step(time.Minute)
	result := b.maintain()
	require.Equal(t, outcome.Completed, result.Phase)
	require.Contains(t, result.Message, "another program")
	b.clock.Step(time.Hour)
	require.Empty(t, b.maintain().Message)
}

// TestOneHolderAtATime checks that a run keeps others out until it ends, or, if it is killed, until its lease expires.
func TestOneHolderAtATime(t *testing.T) {
	b := newBed(t)
	b.open()
	other := func(s *maintain.Spec) { s.Holder = "b" }
	inside := 0
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpPut && strings.HasSuffix(key, "kopia.maintenance") && inside == 0 {
			inside++
			result := b.maintain(other)
			require.Equal(t, outcome.Completed, result.Phase, result.Message)
			require.Contains(t, result.Message, "a maintains the repository")
		}
		return nil
	})
	require.Empty(t, b.maintain().Message)
	require.Equal(t, 1, inside)
	require.Empty(t, b.maintain(other).Message, "it was released")

	kill := errors.New("killed") // the end of the run is never written
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpPut && strings.HasPrefix(key, "metadata/") {
			return kill
		}
		return nil
	})
	b.clock.Step(time.Minute)
	require.ErrorContains(t, errors.New(b.maintain().Message), "killed")
	b.store.Inject(nil)
	b.clock.Step(39 * time.Minute)
	require.Contains(t, b.maintain(other).Message, "was killed")
	require.Equal(t, outcome.Failed, b.maintain().Phase, "its own runs do not end well meanwhile")
	b.clock.Step(2 * time.Minute)
	result := b.maintain(other)
	require.Equal(t, outcome.Result{Phase: outcome.Completed}, result, "the runs of the one that was killed are no other program's")
}

// TestClocksThatDifferAreReported checks what a node with a wrong clock says.
func TestClocksThatDifferAreReported(t *testing.T) {
	b := newBed(t)
	b.open()
	b.store.Clock = clocktesting.NewFakeClock(b.clock.Now().Add(10 * time.Minute))
	result := b.maintain()
	require.Equal(t, outcome.Failed, result.Phase)
	require.Contains(t, result.Message, "clock skew")
}
