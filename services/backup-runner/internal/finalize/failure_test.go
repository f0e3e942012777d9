package finalize_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// failBackup ends the backup as Failed and returns what was committed.
func failBackup(t *testing.T, s *finalize.State) *velerov1.Backup {
	t.Helper()
	s.Cause = errors.New("no disk")
	require.NoError(t, s.Run(t.Context(), finalize.Failure()))
	return s.Final
}

func takenSnapshot(pv, id, phase string) nativesnapshot.Snapshot {
	return nativesnapshot.Snapshot{Spec: nativesnapshot.Spec{BackupName: "b", BackupUID: "u", Location: "disks", PersistentVolumeName: pv},
		Status: nativesnapshot.Status{ProviderSnapshotID: id, Phase: phase}}
}

// A backup that fails because a record cannot be understood ends nevertheless, with the snapshots
// of the others.
func TestAFailureListsTheSnapshotsOfReadableRecords(t *testing.T) {
	begun, done := takenSnapshot("pv-1", "", nativesnapshot.PhaseNew), takenSnapshot("pv-1", "snap-1", nativesnapshot.PhaseCompleted)
	unanswered := takenSnapshot("pv-2", "", nativesnapshot.PhaseNew)
	store := newBackupBucket(t,
		[]checkpoint.Record{{Intended: []nativesnapshot.Snapshot{begun}}, {Intended: []nativesnapshot.Snapshot{unanswered}}},
		[]checkpoint.Record{{Snapshots: []nativesnapshot.Snapshot{done}}})
	later, broken := layout.Checkpoint("b", "u", 2, 2), layout.Checkpoint("b", "u", 2, 3)
	store.Set(later, []byte(`{"formatVersion":9,"backup":"b","uid":"u"}`))
	store.Set(broken, []byte(`{`))
	var log bytes.Buffer
	s := newState(t, store, &log)
	committed := failBackup(t, s)
	require.Equal(t, velerov1.BackupPhaseFailed, committed.Status.Phase)
	require.Equal(t, []int{2, 1}, []int{committed.Status.VolumeSnapshotsAttempted, committed.Status.VolumeSnapshotsCompleted})
	list, err := nativesnapshot.Read(t.Context(), store, "b")
	require.NoError(t, err)
	require.Equal(t, []nativesnapshot.Snapshot{done, unanswered}, list)
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "what closed the first epoch is no record: %s", log.String())
	require.Contains(t, log.String(), later)
	require.Contains(t, log.String(), broken)
}

// The spec as it is by now does not change what was taken.
func TestAFailureListsSnapshotsThatNobodyWantsAnyMore(t *testing.T) {
	done := takenSnapshot("pv-1", "snap-1", nativesnapshot.PhaseCompleted)
	store := newBackupBucket(t, []checkpoint.Record{{Snapshots: []nativesnapshot.Snapshot{done}}})
	s := newState(t, store, &bytes.Buffer{})
	s.Backup.Spec.SnapshotVolumes = ptr.To(false)
	committed := failBackup(t, s)
	require.Equal(t, 1, committed.Status.VolumeSnapshotsCompleted)
	list, err := nativesnapshot.Read(t.Context(), store, "b")
	require.NoError(t, err)
	require.Equal(t, []nativesnapshot.Snapshot{done}, list)
}

// A backup never passes over a volume in silence (P10).
func TestAVolumeThatWasNeverDecidedOnIsNotPublished(t *testing.T) {
	store := newBackupBucket(t, []checkpoint.Record{
		{Volumes: []checkpoint.VolumeInfo{{PVCNamespace: "a", PVCName: "one", PVName: "pv-1", Pending: true}, {PVCNamespace: "a", PVCName: "two", PVName: "pv-2", Pending: true}}},
		{Volumes: []checkpoint.VolumeInfo{{PVName: "pv-alone", Pending: true}}},
		{Volumes: []checkpoint.VolumeInfo{{PVCNamespace: "a", PVCName: "one", PVName: "pv-1", Skipped: true}}},
	})
	c := checkpoint.Composition{Backup: "b", UID: "u", Epoch: 1}
	for seq := range int64(3) {
		c.Checkpoints = append(c.Checkpoints, layout.Checkpoint("b", "u", 1, seq+1))
	}
	s := newState(t, store, &bytes.Buffer{})
	s.Collect = func(context.Context) (checkpoint.Composition, error) { return c, nil }
	require.ErrorContains(t, s.Run(t.Context(), finalize.Backup()), `1 of them, such as "pv-2"`)
	for _, key := range store.Keys() {
		require.Contains(t, key, "/parts/", "nothing is published")
	}
}
