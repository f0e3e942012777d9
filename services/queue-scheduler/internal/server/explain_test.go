package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

func queuedBackup(name string, sequence int, namespaces ...string) *velerov1.Backup {
	b := newJobBackup(name, velerov1.BackupPhaseQueued, fmt.Sprint(sequence), 100-sequence)
	b.Spec.IncludedNamespaces = namespaces
	return b
}

func createRunning(t *testing.T, c client.Client, name string, namespaces ...string) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), newJobBackup(name, velerov1.BackupPhaseInProgress, "1", 100)))
	require.NoError(t, jobtest.Admit(t.Context(), ledger.New(c, c, "velero"), ledger.Entry{
		UID: types.UID(name), Kind: ledger.KindBackup, Namespace: "velero", Name: name, Namespaces: namespaces, Since: time.Unix(1000, 0),
	}, ledger.Limits{}))
}

func TestExplainBackup(t *testing.T) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "r"}, Spec: velerov1.RestoreSpec{IncludedNamespaces: []string{"d"}}}
	s, c := newServer(queuedBackup("overlaps", 2, "a", "b", "x"), queuedBackup("behind", 3, "b", "c"), queuedBackup("free", 4, "y"), queuedBackup("full", 5, "z"),
		queuedBackup("restored", 6, "d"), newJobBackup("new", "", "", 1), newJobBackup("done", velerov1.BackupPhaseCompleted, "", 1), r)
	createRunning(t, c, "big", "a", "x")
	for name, want := range map[string]struct {
		reason   queuev1.WaitReason
		message  string
		position int32
	}{
		"overlaps": {queuev1.WaitReason_WAIT_REASON_OVERLAP_RUNNING, "backup big runs on namespaces a, x", 2},
		"behind":   {queuev1.WaitReason_WAIT_REASON_OVERLAP_AHEAD, "backup overlaps is ahead in the queue and needs namespace b too", 3},
		"free":     {queuev1.WaitReason_WAIT_REASON_NEXT_PASS, "nothing is in its way, it starts with the next pass", 4},
		"full":     {queuev1.WaitReason_WAIT_REASON_NO_PLACE, "2 of 2 backups that may run at once do, or start before it: backup big, backup free", 5},
		"restored": {queuev1.WaitReason_WAIT_REASON_RESTORE_AHEAD, "restore r waits for namespace d too and goes first; one more thing is in the way", 6},
		"new":      {queuev1.WaitReason_WAIT_REASON_OVERLAP_RUNNING, "backup big runs on namespaces a, x; 7 more things are in the way", 7},
		"big":      {queuev1.WaitReason_WAIT_REASON_UNSPECIFIED, "it runs", 0},
		"done":     {queuev1.WaitReason_WAIT_REASON_UNSPECIFIED, "it has ended: Completed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: name})
			require.NoError(t, err)
			require.Equal(t, want.reason, resp.GetReason())
			require.Equal(t, want.message, resp.GetMessage())
			require.Equal(t, want.position, resp.GetEntry().GetPosition())
			require.Equal(t, name, resp.GetEntry().GetName())
		})
	}
	resp, err := s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: "overlaps"})
	require.NoError(t, err)
	require.Len(t, resp.GetObstacles(), 1)
	o := resp.GetObstacles()[0]
	require.Equal(t, []string{"a", "x"}, o.GetNamespaces())
	require.Equal(t, "big", o.GetJobs()[0].GetUid())
	require.Equal(t, queuev1.JobKind_JOB_KIND_BACKUP, o.GetJobs()[0].GetKind())
	require.EqualValues(t, 1000, o.GetSince().GetSeconds())
	resp, err = s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: "full"})
	require.NoError(t, err)
	require.EqualValues(t, 2, resp.GetObstacles()[0].GetLimit())
	_, err = s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: "absent"})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

func TestExplanationsDoNotGrowWithTheQueue(t *testing.T) {
	var objects []client.Object
	for i := range 80 {
		objects = append(objects, queuedBackup(fmt.Sprintf("b%d", i), i+2))
	}
	s, c := newServer(objects...)
	createRunning(t, c, "big", "*")
	resp, err := s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: "b79"})
	require.NoError(t, err)
	require.Len(t, resp.GetObstacles(), 50)
	require.EqualValues(t, 30, resp.GetObstaclesLeftOut())
	require.Equal(t, "backup big runs on all namespaces; 79 more things are in the way", resp.GetMessage())
}

// A backup outside of the queue is explained by what is wrong with it.
func TestExplainABackupWithoutItsLocation(t *testing.T) {
	b := queuedBackup("waits", 1, "a")
	b.Spec.StorageLocation = "main"
	l := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "main"}}
	l.Status.Phase, l.Status.Message = velerov1.LocationPhaseUnavailable, "no route"
	s, _ := newServer(b, l)
	resp, err := s.ExplainBackup(t.Context(), &queuev1.ExplainBackupRequest{Name: "waits"})
	require.NoError(t, err)
	require.Equal(t, queuev1.WaitReason_WAIT_REASON_LOCATION_UNAVAILABLE, resp.GetReason())
	require.Equal(t, `backup storage location "main" is unavailable: no route`, resp.GetMessage())
	require.Equal(t, resp.GetMessage(), resp.GetObstacles()[0].GetMessage())
}
