package finalize_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// snapshots are a cluster with the CSI snapshots a/kept and a/other of the backup.
type snapshots struct {
	ended  []csisnapshot.Owner
	stored map[string]bool // whether what the driver stored stays, by the name of the snapshot
}

func (s *snapshots) End(_ context.Context, of csisnapshot.Owner, stored func(types.NamespacedName) bool) error {
	s.ended = append(s.ended, of)
	s.stored = map[string]bool{}
	for _, name := range []string{"kept", "other"} {
		s.stored[name] = stored(types.NamespacedName{Namespace: "a", Name: name})
	}
	return nil
}

// A taker that finds the commit of a backup without operations removes what its calls left: a snapshot
// that none of them named is of no use.
func TestATakerEndsTheSnapshotsOfABackupWithoutOperations(t *testing.T) {
	named := operation.Operation{Action: csisnapshot.NameSnapshot, ID: "a/kept/t"}
	for name, tc := range map[string]struct {
		composed []operation.Operation
		ended    int
	}{"none": {nil, 1}, "one, and its list is gone": {[]operation.Operation{named}, 0}} {
		t.Run(name, func(t *testing.T) {
			store := newBackupBucket(t)
			_, err := checkpoint.RecordComposition(t.Context(), store, checkpoint.Composition{
				Backup: "b", UID: "u", Epoch: 1, Phase: velerov1.BackupPhaseCompleted, Operations: tc.composed})
			require.NoError(t, err)
			s, cluster := newState(t, store, &bytes.Buffer{}), &snapshots{}
			s.Snapshots = cluster
			s.Decide(&velerov1.Backup{Status: velerov1.BackupStatus{Phase: velerov1.BackupPhaseCompleted}})
			require.NoError(t, s.Run(t.Context(), finalize.End()))
			require.Len(t, cluster.ended, tc.ended)
		})
	}
}

// A backup that fails, also at a taker, counts the operations that it began, and CSI snapshots among
// them.
func TestAFailureCountsItsOperations(t *testing.T) {
	store := newBackupBucket(t)
	of := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}
	_, err := operation.Seal(t.Context(), store, operation.List{Job: of, Epoch: 1, Operations: []operation.Operation{
		{Action: csisnapshot.NameSnapshot, ID: "a/kept/t"}, {Action: csisnapshot.NameSnapshot, ID: "a/other/t"}, {Action: "a.io/mover", ID: "m"}}})
	require.NoError(t, err)
	log, err := operation.Open(t.Context(), store, of)
	require.NoError(t, err)
	now := time.Unix(1700000000, 0)
	require.NoError(t, log.Append(t.Context(), operation.Event{Operation: 0, Time: now, End: &operation.End{}},
		operation.Event{Operation: 1, Time: now, End: &operation.End{Error: "no space"}}, operation.Event{Operation: 2, Time: now, End: &operation.End{}}))
	got := failBackup(t, newState(t, store, &bytes.Buffer{})).Status
	require.Equal(t, []int{3, 2, 1}, []int{got.BackupItemOperationsAttempted, got.BackupItemOperationsCompleted, got.BackupItemOperationsFailed})
	require.Equal(t, []int{2, 1}, []int{got.CSIVolumeSnapshotsAttempted, got.CSIVolumeSnapshotsCompleted})
}

// What the drivers stored goes only where it is known that the backup does not name it: another
// server's backup has no list of operations here, nor has one whose end was found in the bucket.
func TestSnapshotsOfAnUnknownBackupStay(t *testing.T) {
	ended := func(p velerov1.BackupPhase) *velerov1.Backup {
		return &velerov1.Backup{Status: velerov1.BackupStatus{Phase: p}}
	}
	named := operation.Operation{Action: csisnapshot.NameSnapshot, ID: "a/kept/t", Item: operation.Resource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots", Namespace: "a", Name: "kept"}}
	both, one := map[string]bool{"kept": false, "other": false}, map[string]bool{"kept": true, "other": false}
	for name, tc := range map[string]struct {
		phase  velerov1.BackupPhase
		sealed bool
		change func(s *finalize.State)
		want   map[string]bool // nil: nothing is removed
	}{
		"found with a list":       {velerov1.BackupPhaseCompleted, true, nil, one},
		"found without a list":    {velerov1.BackupPhaseCompleted, false, nil, nil},
		"found, partially failed": {velerov1.BackupPhasePartiallyFailed, false, nil, nil},
		"found as failed":         {velerov1.BackupPhaseFailed, false, nil, both},
		"collected, no operation": {velerov1.BackupPhaseCompleted, false, func(s *finalize.State) { s.Composition = &checkpoint.Composition{} }, both},
		"collected, not waited for": {velerov1.BackupPhaseCompleted, false, func(s *finalize.State) {
			s.Composition = &checkpoint.Composition{Operations: []operation.Operation{named}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := newBackupBucket(t)
			s := newState(t, store, &bytes.Buffer{})
			cluster := &snapshots{}
			s.Snapshots = cluster
			if tc.sealed {
				_, err := operation.Seal(t.Context(), store, operation.List{
					Job: operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}, Epoch: 1, Operations: []operation.Operation{named}})
				require.NoError(t, err)
			}
			if tc.change != nil {
				tc.change(s)
			}
			s.Decide(ended(tc.phase))
			require.NoError(t, s.Run(t.Context(), finalize.End()))
			require.Equal(t, tc.want, cluster.stored)
			if tc.want != nil {
				require.Equal(t, []csisnapshot.Owner{{Name: "b", UID: "u"}}, cluster.ended)
			}
		})
	}
}
