package backupsync

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// TestABucketGivesNoOrdersOfOurs: an imported backup keeps the finalizers it had, so that nothing
// can delete it, and every annotation of Holdfast but the claim, such as one that lets it be
// deleted without its volume data.
func TestABucketGivesNoOrdersOfOurs(t *testing.T) {
	b := newBed(t)
	backup := storedBackup("b", velerov1.BackupPhaseCompleted)
	backup.Finalizers = []string{"example.com/never"}
	backup.Labels = map[string]string{"team": "a", "velero.io/schedule-name": "daily", "holdfast.io/own": "x"}
	backup.Annotations = map[string]string{
		"note": "kept", "velero.io/source-cluster-k8s-major-version": "1", holdfast.AnnotationClaim: "{}", holdfast.AnnotationCancel: "now",
		holdfast.AnnotationSkipDeleteActions: "true", holdfast.AnnotationLeaveVolumeData: "true", "holdfast.io/unknown": "x",
	}
	b.putBackup(backup)
	b.runPass()
	got := b.getBackup("b")
	require.Empty(t, got.Finalizers)
	require.Equal(t, map[string]string{"note": "kept", "velero.io/source-cluster-k8s-major-version": "1"}, got.Annotations)
	require.Equal(t, map[string]string{"team": "a", "velero.io/schedule-name": "daily", velerov1.LabelStorageLocation: velerov1.LabelValue(longName)}, got.Labels)
}

// TestUnfinishedBackupsAreNoWork: what waits or finalizes counts as partially failed once it has
// expired, as with Velero, and stays out before. Every other phase that has not ended would be
// taken for a request by a runner here.
func TestUnfinishedBackupsAreNoWork(t *testing.T) {
	b := newBed(t)
	for i, tc := range []struct {
		phase        velerov1.BackupPhase
		alive, after velerov1.BackupPhase // what an object gets before and after the expiration; empty is none
	}{
		{velerov1.BackupPhaseWaitingForPluginOperations, "", velerov1.BackupPhasePartiallyFailed},
		{velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed, "", velerov1.BackupPhasePartiallyFailed},
		{velerov1.BackupPhaseFinalizing, "", velerov1.BackupPhasePartiallyFailed},
		{velerov1.BackupPhaseFinalizingPartiallyFailed, "", velerov1.BackupPhasePartiallyFailed},
		{velerov1.BackupPhaseNew, "", ""}, {velerov1.BackupPhaseQueued, "", ""}, {velerov1.BackupPhaseReadyToStart, "", ""},
		{velerov1.BackupPhaseInProgress, "", ""}, {velerov1.BackupPhaseDeleting, "", ""}, {velerov1.BackupPhaseFailedValidation, "", ""},
		{"Surprising", "", ""}, {"", "", ""},
		{velerov1.BackupPhaseFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseFailed},
	} {
		for _, expired := range []bool{false, true} {
			name, want, expiration := fmt.Sprintf("b%d-%t", i, expired), tc.alive, start.Add(24*time.Hour)
			if expired {
				want, expiration = tc.after, start.Add(-time.Hour)
			}
			backup := storedBackup(name, tc.phase)
			backup.Status.Expiration = &metav1.Time{Time: expiration}
			b.putBackup(backup)
			b.clock.Step(time.Minute)
			b.runPass()
			got := b.getBackup(name)
			require.Equal(t, want == "", got == nil, "%s, expired: %t", tc.phase, expired)
			if got != nil {
				require.Equal(t, want, got.Status.Phase)
			}
		}
	}
}

// TestABucketCannotFillTheAPIServer: every directory of a bucket became an object, however many
// there were.
func TestABucketCannotFillTheAPIServer(t *testing.T) {
	b := newBed(t, existingBackup("here", "other", velerov1.BackupPhaseCompleted))
	b.s.limit = 4
	for i := range 9 {
		b.putBackup(storedBackup(fmt.Sprintf("b%d", i), velerov1.BackupPhaseCompleted))
	}
	for range 2 {
		b.runPass()
		b.clock.Step(time.Minute)
		for i := range 9 {
			require.Equal(t, i < 3, b.getBackup(fmt.Sprintf("b%d", i)) != nil, i)
		}
	}
}

func podVolume(name, backup string, phase velerov1.PodVolumePhase) velerov1.PodVolumeBackup {
	pvb := velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{velerov1.LabelBackupName: backup}}}
	pvb.Status.Phase = phase
	return pvb
}

// TestPodVolumeBackupsOfABucketStartNothing: a node agent of Velero runs a PodVolumeBackup without
// a terminal phase, with the Pod that it names; one that names another backup would be restored
// with that one's volumes.
func TestPodVolumeBackupsOfABucketStartNothing(t *testing.T) {
	b := newBed(t)
	b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	good := podVolume("good", "b", velerov1.PodVolumePhaseCompleted)
	good.Finalizers = []string{"example.com/never"}
	good.Annotations = map[string]string{"velero.io/pvc-name": "data", holdfast.AnnotationCancel: "x"}
	good.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "velero.io/v1", Kind: "Backup", Name: "b", UID: "theirs"}, {APIVersion: "velero.io/v1", Kind: "Backup", Name: "other", UID: "x"},
		{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "y"},
	}
	list := []velerov1.PodVolumeBackup{
		good, podVolume("failed", "b", velerov1.PodVolumePhaseFailed), podVolume("canceled", "b", velerov1.PodVolumePhaseCanceled),
		podVolume("of-another", "other", velerov1.PodVolumePhaseCompleted), podVolume("of-nothing", "", velerov1.PodVolumePhaseCompleted),
	}
	for i, phase := range []velerov1.PodVolumePhase{
		"", velerov1.PodVolumePhaseNew, velerov1.PodVolumePhaseAccepted, velerov1.PodVolumePhasePrepared, velerov1.PodVolumePhaseInProgress,
		velerov1.PodVolumePhaseCanceling, "Surprising",
	} {
		list = append(list, podVolume(fmt.Sprintf("open-%d", i), "b", phase))
	}
	data, err := json.Marshal(list)
	require.NoError(t, err)
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, string(data)))
	b.runPass()
	var got velerov1.PodVolumeBackupList
	require.NoError(t, b.client.List(t.Context(), &got, client.InNamespace("velero")))
	names := map[string]*velerov1.PodVolumeBackup{}
	for i := range got.Items {
		names[got.Items[i].Name] = &got.Items[i]
	}
	require.Len(t, names, 3)
	require.Contains(t, names, "failed")
	require.Contains(t, names, "canceled")
	require.Empty(t, names["good"].Finalizers)
	require.Equal(t, map[string]string{"velero.io/pvc-name": "data"}, names["good"].Annotations)
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Backup", Name: "b", UID: b.getBackup("b").UID}}, names["good"].OwnerReferences)
}
