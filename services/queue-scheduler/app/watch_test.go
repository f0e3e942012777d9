package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Progress and positions are written several times a second: they do not wake the scheduler.
func TestWhatWakesTheScheduler(t *testing.T) {
	wakes := func(before, after client.Object) bool {
		return relevantUpdates().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	for name, tc := range map[string]struct {
		change func(*velerov1.Backup)
		want   bool
	}{
		"progress":   {func(b *velerov1.Backup) { b.Status.Progress = &velerov1.BackupProgress{TotalItems: 7} }, false},
		"position":   {func(b *velerov1.Backup) { b.Status.QueuePosition = 3; b.ResourceVersion = "8" }, false},
		"phase":      {func(b *velerov1.Backup) { b.Status.Phase = velerov1.BackupPhaseCompleted }, true},
		"spec":       {func(b *velerov1.Backup) { b.Spec.IncludedNamespaces = []string{"a"} }, true},
		"annotation": {func(b *velerov1.Backup) { b.Annotations = map[string]string{"holdfast.io/priority": "high"} }, true},
		"deletion":   {func(b *velerov1.Backup) { b.DeletionTimestamp = &metav1.Time{} }, true},
		"another":    {func(b *velerov1.Backup) { b.UID = "2" }, true},
	} {
		after := &velerov1.Backup{}
		tc.change(after)
		require.Equal(t, tc.want, wakes(&velerov1.Backup{}, after), name)
	}
	running := &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress}}
	further := running.DeepCopy()
	further.Status.Progress = &velerov1.RestoreProgress{TotalItems: 7}
	require.False(t, wakes(running, further))
	further.Status.Phase = velerov1.RestorePhaseCompleted
	require.True(t, wakes(running, further))
	require.True(t, relevantUpdates().Create(event.CreateEvent{Object: running}))
	require.True(t, relevantUpdates().Delete(event.DeleteEvent{Object: running}))
}
