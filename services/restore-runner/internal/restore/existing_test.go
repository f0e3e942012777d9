package restore_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// leftover is the volume of the backup as its deleted claim left it, and as the backup has it
// otherwise.
func leftover(phase, policy string) object {
	return object{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": "pv", "annotations": object{"pv.kubernetes.io/bound-by-controller": "yes"}},
		"spec": object{"persistentVolumeReclaimPolicy": policy, "hostPath": object{"path": "old"},
			"claimRef": object{"namespace": "a", "name": "claim", "uid": "old-claim", "resourceVersion": "3"}},
		"status": object{"phase": phase}}
}

func deleting(pv object) object {
	kubetest.Meta(pv)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	return pv
}

// looked calls do at the n-th read of the volume.
func looked(s *kubetest.Server, n int, do func()) {
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

func madeAnew(t *testing.T, s *kubetest.Server, c *cloud, f *finished) {
	t.Helper()
	require.Empty(t, f.results.Errors.all())
	require.Empty(t, f.results.Warnings.all())
	require.Len(t, c.made, 1)
	require.Equal(t, []string{"pv(created)"}, f.list["v1/PersistentVolume"])
	require.Equal(t, object{"path": "volume-1"}, s.Object(pvPath)["spec"].(object)["hostPath"])
}

// A volume that goes away with its namespace is not there to be kept: the data comes back from the
// snapshot.
func TestAVolumeThatIsGoingAwayIsWaitedFor(t *testing.T) {
	for name, pv := range map[string]object{
		"released":                      leftover("Released", "Delete"),
		"not reclaimed":                 leftover("Failed", "Delete"),
		"being deleted":                 deleting(leftover("Bound", "Delete")),
		"being deleted, and kept":       deleting(leftover("Released", "Retain")),
		"bound to a claim that is gone": leftover("Bound", "Delete"),
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, pv)
			looked(s, 3, func() { s.Delete(pvPath) })
			madeAnew(t, s, c, run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c)))
		})
	}
}

func TestAVolumeWhoseClaimIsBeingDeletedIsWaitedFor(t *testing.T) {
	for name, claim := range map[string]object{
		"being deleted": {"name": "claim", "uid": "old-claim", "deletionTimestamp": "2026-01-01T00:00:00Z"},
		"another one":   {"name": "claim", "uid": "new-claim"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, leftover("Bound", "Delete"))
			s.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
			path := "/api/v1/namespaces/a/persistentvolumeclaims/claim"
			s.Put(path, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim})
			looked(s, 3, func() { s.Delete(pvPath); s.Delete(path) })
			madeAnew(t, s, c, run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c)))
		})
	}
}

func TestAVolumeOfALivingClaimStays(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	s.Put(pvPath, leftover("Bound", "Delete"))
	s.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
	s.Put("/api/v1/namespaces/a/persistentvolumeclaims/claim", object{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": object{"name": "claim", "namespace": "a", "uid": "old-claim"}, "spec": object{"volumeName": "pv"}})
	f := run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c))
	require.Empty(t, c.made)
	require.Empty(t, f.results.Errors.all())
	require.Equal(t, []string{"pv(skipped)"}, f.list["v1/PersistentVolume"])
}

func TestAVolumeThatDoesNotGoAwayIsAnError(t *testing.T) {
	for want, pv := range map[string]object{
		`PersistentVolume "pv" is there after 300ms still, and is Released with reclaim policy Delete`: leftover("Released", "Delete"),
		`PersistentVolume "pv" is there after 300ms still, and is being deleted`:                       deleting(leftover("Bound", "Delete")),
		`PersistentVolume "pv" exists and is Released with reclaim policy Retain`:                      leftover("Released", "Retain"),
	} {
		t.Run(want, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, pv)
			f := run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c), func(config *restore.Config) {
				config.TerminatingTimeout = 300 * time.Millisecond
			})
			require.Empty(t, c.made)
			require.Contains(t, f.results.Errors.all(), want)
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
				s.Put(pvPath, deleting(leftover("Available", "Delete")))
				looked(s, 3, func() { s.Delete(pvPath) })
			},
		} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				s, c := kubetest.Start(t), &cloud{}
				s.Put(pvPath, leftover("Available", "Delete"))
				looked(s, 2, func() { vanish(s) })
				madeAnew(t, s, c, run(t, s, snapshotted(), velerov1.RestoreSpec{ExistingResourcePolicy: policy}, on(c)))
			})
		}
	}
}

// A restore that is to stop does not wait until a volume is deleted: its successor does.
func TestAStopEndsTheWaitForAVolume(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	s.Put(pvPath, leftover("Released", "Delete"))
	f := run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c), func(config *restore.Config) {
		first, stop, records := *config, make(chan struct{}), t.TempDir()
		first.Stop, first.TerminatingTimeout = stop, time.Hour
		first.Recorder = outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), config.Clock, 10, t.TempDir())
		first.Recorder.SetPlan(config.Plan)
		first.Recorder.Planned(&outcome.Planned{})
		stored := keepRecords(t, first.Recorder, records)
		looked(s, 3, func() { close(stop) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, restore.Run(ctx, first), dispatch.ErrStopped)
		stored()
		require.Zero(t, first.Recorder.Counts().Errors)
		looked(s, 3, func() { s.Delete(pvPath) })
		replay(t, config, records)
	})
	madeAnew(t, s, c, f)
}
