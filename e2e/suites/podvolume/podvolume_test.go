package podvolume

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

const (
	preHook  = "pre.hook.backup.velero.io/command"
	postHook = "post.hook.backup.velero.io/command"
)

func TestPodVolumes(t *testing.T) {
	b := newBed(t)
	t.Run("there and back", b.thereAndBack)
	t.Run("what is not taken", b.notTaken)
	t.Run("another password", b.anotherPassword)
	t.Run("killed meanwhile", b.killedMeanwhile)
	t.Run("cancelled", b.cancelled)
	t.Run("deleted", b.deleted)
	t.Run("single files", b.singleFiles)
	t.Run("files restored", b.filesRestored)
}

// thereAndBack has the files of a Pod's volumes survive the loss of its namespace, there and in another one.
func (b *bed) thereAndBack(t *testing.T) {
	const name = "shop"
	dirs := b.createApplication(t, name, map[string]string{preHook: "freeze", postHook: "thaw"})
	want := map[string]map[string]string{"data": volumefiles.Describe(t, dirs["data"]), "scratch": volumefiles.Describe(t, dirs["scratch"])}
	b.createBackup(t, name)
	backup := b.BackupCompletes(t, name)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: 2}, backup.Status.HookStatus)
	require.Equal(t, []string{"freeze", "thaw"}, b.apps.commandsIn(name))
	b.requireRecorded(t, name, "data", "scratch")
	b.requireNoMovers(t)

	b.destroy(t, name)
	t.Run("restored", func(t *testing.T) {
		for _, namespace := range []string{name, "shop-copy"} {
			t.Run(namespace, func(t *testing.T) {
				t.Parallel()
				restored := b.restore(t, name, namespace)
				for volume, entries := range want {
					require.Equal(t, entries, volumefiles.Describe(t, restored[volume]), "volume %s", volume)
				}
			})
		}
	})
	b.requireNoMovers(t)
}

// requireRecorded checks that the cluster and the bucket have one finished request for each of the volumes.
func (b *bed) requireRecorded(t *testing.T, backup string, volumes ...string) {
	t.Helper()
	found := b.requests(t, backup)
	require.Len(t, found, len(volumes))
	var stored []velerov1.PodVolumeBackup
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, layout.BackupPodVolumeBackups(backup)), &stored))
	var infos []struct {
		BackupMethod, Result string
		Pod                  struct{ SnapshotHandle, VolumeName, PodName string } `json:"pvbInfo"`
	}
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, layout.BackupVolumeInfo(backup)), &infos))
	recorded, listed := map[string]string{}, map[string]string{}
	for _, p := range stored {
		require.Equal(t, velerov1.PodVolumePhaseCompleted, p.Status.Phase)
		recorded[p.Spec.Volume] = p.Status.SnapshotID
	}
	for _, i := range infos {
		if i.BackupMethod == "PodVolumeBackup" {
			require.Equal(t, "succeeded", i.Result)
			listed[i.Pod.VolumeName] = i.Pod.SnapshotHandle
		}
	}
	require.Equal(t, recorded, listed)
	for _, volume := range volumes {
		p := found[volume]
		require.Equal(t, velerov1.PodVolumePhaseCompleted, p.Status.Phase, "%s: %s", volume, p.Status.Message)
		require.NotEmpty(t, p.Status.SnapshotID)
		require.Equal(t, p.Status.SnapshotID, recorded[volume])
		require.Positive(t, p.Status.Progress.TotalBytes)
		require.Equal(t, p.Status.Progress.TotalBytes, p.Status.Progress.BytesDone)
	}
	require.Len(t, recorded, len(volumes))
}

// restore restores Pod db of a backup into a namespace, runs it when its data is there, and returns the
// directories of its volumes.
func (b *bed) restore(t *testing.T, backup, namespace string) map[string]string {
	t.Helper()
	pod := b.createRestore(t, backup, namespace)
	ctx, cancel := context.WithTimeout(t.Context(), site.Patience)
	defer cancel()
	require.NoError(t, b.movers.WaitRestored(ctx, pod))
	ended := b.RestoreEnds(t, namespace)
	require.Equal(t, velerov1.RestorePhaseCompleted, ended.Status.Phase, "%s", b.bucket.ReadZipped(t, layout.RestoreResults(namespace)))
	requests := b.restoreRequests(t, namespace)
	require.Len(t, requests, 2)
	for _, r := range requests {
		require.Equal(t, velerov1.PodVolumePhaseCompleted, r.Status.Phase, r.Status.Message)
	}
	var infos []struct {
		Claim  string                                 `json:"pvcName"`
		Volume string                                 `json:"pvName"`
		Pod    struct{ SnapshotHandle, Phase string } `json:"pvrInfo"`
	}
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, layout.RestoreVolumeInfo(namespace)), &infos))
	require.Len(t, infos, len(requests))
	for i := range infos {
		require.Equal(t, "Completed", infos[i].Pod.Phase)
		require.NotEmpty(t, infos[i].Pod.SnapshotHandle)
		require.Equal(t, infos[i].Claim == "", infos[i].Volume == "", "the claim of a filled volume is bound")
	}
	dirs, err := b.movers.MountVolumes(t.Context(), pod)
	require.NoError(t, err)
	return dirs
}
