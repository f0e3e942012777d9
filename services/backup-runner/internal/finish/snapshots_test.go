package finish_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

func taken(pv, id, phase string) nativesnapshot.Snapshot {
	return nativesnapshot.Snapshot{Spec: nativesnapshot.Spec{BackupName: "b", BackupUID: "u", Location: "disks", PersistentVolumeName: pv},
		Status: nativesnapshot.Status{ProviderSnapshotID: id, Phase: phase}}
}

// bucket is one of a backup of several holders: each has a log of records, given here.
func bucket(t *testing.T, holders ...[]checkpoint.Record) *memstore.Store {
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

func job(t *testing.T, store *memstore.Store, log *bytes.Buffer) *finish.Job {
	t.Helper()
	start := metav1.NewTime(time.Unix(1700000000, 0))
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}}
	b.Status.StartTimestamp = &start
	b.Spec.VolumeSnapshotLocations = []string{"disks"}
	return &finish.Job{Backup: b, Cluster: "c", Store: store, Dir: t.TempDir(), Clock: clock.RealClock{},
		Log: slog.New(slog.NewTextHandler(log, nil))}
}

var verdict = checkpoint.Failure{Reason: "no disk", Time: time.Unix(1700000001, 0).UTC()}

// A backup that fails because a record cannot be understood ends all the same, with the snapshots that the others tell of.
func TestAFailureListsTheSnapshotsOfReadableRecords(t *testing.T) {
	begun, done := taken("pv-1", "", nativesnapshot.PhaseNew), taken("pv-1", "snap-1", nativesnapshot.PhaseCompleted)
	unanswered := taken("pv-2", "", nativesnapshot.PhaseNew)
	store := bucket(t,
		[]checkpoint.Record{{Intended: []nativesnapshot.Snapshot{begun}}, {Intended: []nativesnapshot.Snapshot{unanswered}}},
		[]checkpoint.Record{{Snapshots: []nativesnapshot.Snapshot{done}}})
	later, broken := layout.Checkpoint("b", "u", 2, 2), layout.Checkpoint("b", "u", 2, 3)
	store.Set(later, []byte(`{"formatVersion":9,"backup":"b","uid":"u"}`))
	store.Set(broken, []byte(`{`))
	var log bytes.Buffer
	j := job(t, store, &log)
	committed, err := j.Fail(t.Context(), verdict)
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseFailed, committed.Status.Phase)
	require.Equal(t, []int{2, 1}, []int{committed.Status.VolumeSnapshotsAttempted, committed.Status.VolumeSnapshotsCompleted})
	list, err := nativesnapshot.Read(t.Context(), store, "b")
	require.NoError(t, err)
	require.Equal(t, []nativesnapshot.Snapshot{done, unanswered}, list)
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "what closed the first epoch is no record: %s", log.String())
	require.Contains(t, log.String(), later)
	require.Contains(t, log.String(), broken)
}

// What the spec says by now does not change what was taken.
func TestAFailureListsSnapshotsThatNobodyWantsAnyMore(t *testing.T) {
	done := taken("pv-1", "snap-1", nativesnapshot.PhaseCompleted)
	store := bucket(t, []checkpoint.Record{{Snapshots: []nativesnapshot.Snapshot{done}}})
	j := job(t, store, &bytes.Buffer{})
	j.Backup.Spec.SnapshotVolumes = ptr.To(false)
	committed, err := j.Fail(t.Context(), verdict)
	require.NoError(t, err)
	require.Equal(t, 1, committed.Status.VolumeSnapshotsCompleted)
	list, err := nativesnapshot.Read(t.Context(), store, "b")
	require.NoError(t, err)
	require.Equal(t, []nativesnapshot.Snapshot{done}, list)
}

// A backup never passes over a volume in silence (P10).
func TestAVolumeThatWasNeverDecidedOnIsNotPublished(t *testing.T) {
	store := bucket(t, []checkpoint.Record{
		{Volumes: []volume.Info{{PVCNamespace: "a", PVCName: "one", PVName: "pv-1", Pending: true}, {PVCNamespace: "a", PVCName: "two", PVName: "pv-2", Pending: true}}},
		{Volumes: []volume.Info{{PVName: "pv-alone", Pending: true}}},
		{Volumes: []volume.Info{{PVCNamespace: "a", PVCName: "one", PVName: "pv-1", Skipped: true}}},
	})
	c := checkpoint.Composition{Backup: "b", UID: "u", Epoch: 1}
	for seq := range int64(3) {
		c.Checkpoints = append(c.Checkpoints, layout.Checkpoint("b", "u", 1, seq+1))
	}
	_, err := job(t, store, &bytes.Buffer{}).Publish(t.Context(), c)
	require.ErrorContains(t, err, `1 of them, such as "pv-2"`)
	for _, key := range store.Keys() {
		require.Contains(t, key, "/parts/", "nothing is published")
	}
}
