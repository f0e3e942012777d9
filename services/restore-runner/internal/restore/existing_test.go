package restore_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// leftoverVolume is the volume of the backup as its deleted claim left it, and as the backup has it
// otherwise.
func leftoverVolume(phase, policy string) object {
	return object{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": "pv", "annotations": object{"pv.kubernetes.io/bound-by-controller": "yes"}},
		"spec": object{"persistentVolumeReclaimPolicy": policy, "hostPath": object{"path": "old"},
			"claimRef": object{"namespace": "a", "name": "claim", "uid": "old-claim", "resourceVersion": "3"}},
		"status": object{"phase": phase}}
}

func withDeletion(pv object) object {
	kubetest.Meta(pv)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	return pv
}

// atRead calls do at the n-th read of the volume.
func atRead(s *kubetest.Server, n int, do func()) {
	looks := 0
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet && r.URL.Path == pvPath {
			if looks++; looks == n {
				do()
			}
		}
		return 0, false
	})
}

func requireRecreated(t *testing.T, s *kubetest.Server, c *cloud, f *finishedRestore) {
	t.Helper()
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Len(t, c.made, 1)
	require.Equal(t, []string{"pv(created)"}, f.list["v1/PersistentVolume"])
	require.Equal(t, object{"path": "volume-1"}, s.Object(pvPath)["spec"].(object)["hostPath"])
}

// A volume that goes away with its namespace, or its claim, is not there to be kept: the data comes
// back from the snapshot. That of a living claim stays.
func TestAVolumeThatIsGoingAwayIsWaitedFor(t *testing.T) {
	const claimPath = "/api/v1/namespaces/a/persistentvolumeclaims/claim"
	bound := func() object { return leftoverVolume("Bound", "Delete") }
	for name, tt := range map[string]struct {
		pv, claim object
		stays     bool
	}{
		"released":                      {pv: leftoverVolume("Released", "Delete")},
		"not reclaimed":                 {pv: leftoverVolume("Failed", "Delete")},
		"being deleted":                 {pv: withDeletion(bound())},
		"being deleted, and kept":       {pv: withDeletion(leftoverVolume("Released", "Retain"))},
		"bound to a claim that is gone": {pv: bound()},
		"its claim is being deleted":    {pv: bound(), claim: object{"name": "claim", "uid": "old-claim", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
		"another claim of the name":     {pv: bound(), claim: object{"name": "claim", "uid": "new-claim"}},
		"its claim lives":               {pv: bound(), claim: object{"name": "claim", "uid": "old-claim"}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, tt.pv)
			if tt.claim != nil {
				s.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
				s.Put(claimPath, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": tt.claim, "spec": object{"volumeName": "pv"}})
			}
			if !tt.stays {
				atRead(s, 3, func() { s.Delete(pvPath); s.Delete(claimPath) })
			}
			f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c))
			if !tt.stays {
				requireRecreated(t, s, c, f)
				return
			}
			require.Empty(t, c.made)
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"pv(skipped)"}, f.list["v1/PersistentVolume"])
		})
	}
}

func TestAVolumeThatDoesNotGoAwayIsAnError(t *testing.T) {
	for want, pv := range map[string]object{
		`PersistentVolume "pv" is there after 300ms still, and is Released with reclaim policy Delete`: leftoverVolume("Released", "Delete"),
		`PersistentVolume "pv" is there after 300ms still, and is being deleted`:                       withDeletion(leftoverVolume("Bound", "Delete")),
		`PersistentVolume "pv" exists and is Released with reclaim policy Retain`:                      leftoverVolume("Released", "Retain"),
	} {
		t.Run(want, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, pv)
			f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c), func(config *restore.Config) {
				config.TerminatingTimeout = 300 * time.Millisecond
			})
			require.Empty(t, c.made)
			require.Contains(t, f.results.Errors.allMessages(), want)
			require.Equal(t, []string{"pv(failed)"}, f.list["v1/PersistentVolume"])
		})
	}
}

// What was there when it was looked for is never created as the backup has it: its volume may be
// gone.
func TestAVolumeThatVanishesIsMadeOfItsSnapshot(t *testing.T) {
	for _, policy := range []velerov1.PolicyType{"", velerov1.PolicyTypeUpdate} {
		for name, vanish := range map[string]func(s *kubetest.Server){
			"gone": func(s *kubetest.Server) { s.Delete(pvPath) },
			"going": func(s *kubetest.Server) {
				s.Put(pvPath, withDeletion(leftoverVolume("Available", "Delete")))
				atRead(s, 3, func() { s.Delete(pvPath) })
			},
		} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				s, c := kubetest.Start(t), &cloud{}
				s.Put(pvPath, leftoverVolume("Available", "Delete"))
				atRead(s, 2, func() { vanish(s) })
				requireRecreated(t, s, c, runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{ExistingResourcePolicy: policy}, useCloud(c)))
			})
		}
	}
}

// A restore that is to stop does not wait until a volume is deleted: its successor does.
func TestAStopEndsTheWaitForAVolume(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	s.Put(pvPath, leftoverVolume("Released", "Delete"))
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c), func(config *restore.Config) {
		records := runFirstOwner(t, config, func(ctx context.Context, _ func(), own *restore.Config) {
			stop := make(chan struct{})
			own.Stop, own.TerminatingTimeout = stop, time.Hour
			atRead(s, 3, func() { close(stop) })
			require.ErrorIs(t, restore.Run(ctx, *own), dispatch.ErrStopped)
			require.Zero(t, own.Recorder.Counts().Errors)
		})
		atRead(s, 3, func() { s.Delete(pvPath) })
		replayRecords(t, config, records)
	})
	requireRecreated(t, s, c, f)
}
