package remove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// repositories are those of the locations.
type repositories struct {
	t     *testing.T
	b     *bed
	has   map[string]bool // location/namespace/ID
	calls int
	err   error
}

func (r *repositories) ForgetSnapshots(_ context.Context, location, namespace string, ids []string) error {
	r.calls++
	require.Contains(r.t, r.b.store.Keys(), layout.BackupTarball("b"), "the backup is whole until they are gone")
	require.LessOrEqual(r.t, len(ids), 500)
	for _, id := range ids {
		if r.err == nil {
			delete(r.has, location+"/"+namespace+"/"+id)
		}
	}
	return r.err
}

func (b *bed) serveRepositories(snapshots ...string) *repositories {
	r := &repositories{t: b.t, b: b, has: map[string]bool{}}
	for _, s := range snapshots {
		r.has["default/"+s] = true
	}
	b.r.Volumes = r
	return r
}

func podVolume(name, namespace, snapshot string, phase velerov1.PodVolumePhase) *velerov1.PodVolumeBackup {
	p := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, Labels: map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "b-uid"},
	}}
	p.Spec.Pod.Namespace, p.Spec.Pod.Name, p.Spec.Volume, p.Spec.UploaderType = namespace, "p", name, "kopia"
	p.Status.SnapshotID, p.Status.Phase = snapshot, phase
	return p
}

// listed is the entry of a snapshot in the list of PodVolumeBackups.
func listed(namespace, snapshot, phase string) string {
	return fmt.Sprintf(`{"spec":{"pod":{"namespace":%q,"name":"p"},"volume":"v-%s","uploaderType":"kopia"},"status":{"phase":%q,"snapshotID":%q}}`, namespace, snapshot, phase, snapshot)
}

// The snapshots of Pod volumes go with their backup, wherever they are named, also those of a transfer that
// something is missing of; others stay.
func TestSnapshotsOfPodVolumesGoWithTheirBackup(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"),
		podVolume("live", "n", "s3", velerov1.PodVolumePhaseCompleted), podVolume("new", "n", "", velerov1.PodVolumePhaseNew))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	r := b.serveRepositories("n/s1", "m/s2", "n/s3", "n/s4", "n/other", "m/s1")
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "["+listed("n", "s1", "Completed")+","+listed("m", "s2", "Failed")+","+listed("m", "", "Failed")+"]"))
	b.store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, `[{"backupMethod":"PodVolumeBackup","result":"succeeded",
	 "pvbInfo":{"snapshotHandle":"s4","uploaderType":"kopia","volumeName":"d","podName":"p","podNamespace":"n"}}]`))
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, map[string]bool{"default/n/other": true, "default/m/s1": true}, r.has)
	require.Nil(t, b.readBackup())
	require.Equal(t, neighbours, b.store.Keys())
}

// dataUpload is one of the backup, of a claim whose operation the backup may list as movedByVelero does.
func dataUpload(name, claim, mover, snapshot string, phase velerov1.PodVolumePhase) *v2alpha1.DataUpload {
	u := &v2alpha1.DataUpload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, Labels: map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "b-uid"},
	}}
	u.Spec.SourceNamespace, u.Spec.SourcePVC, u.Spec.DataMover = "n", claim, mover
	u.Status.SnapshotID, u.Status.Phase = snapshot, v2alpha1.DataMovePhase(phase)
	return u
}

// Moved data goes with its backup, whether the volume information or only a DataUpload names its snapshot. That of other data movers,
// and what only the list of operations knows, stays and keeps the backup.
func TestMovedDataGoesWithItsBackup(t *testing.T) {
	info := func(mover string) string {
		return `[{"pvcName":"moved","pvcNamespace":"n","pvName":"pv","backupMethod":"CSISnapshot","snapshotDataMoved":true,"result":"succeeded",
		 "snapshotDataMovementInfo":{"snapshotHandle":"s1","uploaderType":"kopia","dataMover":"` + mover + `"}}]`
	}
	for name, tc := range map[string]struct {
		info    string
		live    client.Object
		refused bool
	}{
		"by its volume information":      {info: info("velero"), live: dataUpload("failed", "x", "", "", velerov1.PodVolumePhaseFailed)},
		"by its DataUpload":              {info: "[]", live: dataUpload("u", "moved", "velero", "s1", velerov1.PodVolumePhaseCompleted)},
		"of another data mover":          {info: info("theirs"), refused: true},
		"of a DataUpload of another":     {info: info(""), live: dataUpload("u", "x", "theirs", "s1", velerov1.PodVolumePhaseCompleted), refused: true},
		"whose snapshot nothing names":   {info: "[]", refused: true},
		"of another claim that is known": {info: "[]", live: dataUpload("u", "x", "", "s1", velerov1.PodVolumePhaseCompleted), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newBackup(velerov1.BackupPhaseCompleted), newRequest("d")}
			if tc.live != nil {
				objects = append(objects, tc.live)
			}
			b := newBed(t, objects...)
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			r := b.serveRepositories("n/s1", "n/other")
			b.store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, tc.info))
			b.store.Set(layout.BackupItemOperations("b"), limittest.PackedText(t, movedByVelero))
			require.Equal(t, Done, b.processRequest("d"))
			if tc.refused {
				require.Contains(t, b.readRequest("d").Status.Errors[0], "cannot remove: 1 DataUpload")
				require.Zero(t, r.calls)
				return
			}
			require.Nil(t, b.readBackup())
			require.Equal(t, map[string]bool{"default/n/other": true}, r.has)
		})
	}
}

// A repository that cannot be opened, or no volume-mover: the backup stays Deleting with the reason, whole, until
// the snapshots are gone or the user leaves them.
func TestABackupWhoseSnapshotsStayIsKept(t *testing.T) {
	for _, leave := range []bool{false, true} {
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		b.r.Tries = 0
		r := b.serveRepositories("n/s1")
		b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "["+listed("n", "s1", "Completed")+"]"))
		keys := b.store.Keys()
		r.err = fmt.Errorf("no volume-mover runs: %w", errgrpc.ErrUnavailable)
		require.Equal(t, Later, b.processRequest("d"))
		require.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
		require.Equal(t, keys, b.store.Keys())
		require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
		reasons := b.readRequest("d").Status.Errors
		require.Len(t, reasons, 1)
		require.Contains(t, reasons[0], "volume data: snapshots of volumes of namespace n: no volume-mover runs")
		require.Contains(t, reasons[0], holdfast.AnnotationLeaveVolumeData)

		if r.err = nil; leave {
			left := b.readBackup()
			metav1.SetMetaDataAnnotation(&left.ObjectMeta, holdfast.AnnotationLeaveVolumeData, "true")
			require.NoError(t, b.client.Update(t.Context(), left))
		}
		b.clock.Step(time.Minute)
		require.Equal(t, Done, b.processRequest("d"))
		require.Nil(t, b.readBackup())
		require.Equal(t, leave, r.has["default/n/s1"])
	}
}

// A mover that still works may store a snapshot that nobody would know of.
func TestADeletionWaitsForMovers(t *testing.T) {
	pod, upload := podVolume("live", "n", "", velerov1.PodVolumePhaseInProgress), dataUpload("live", "c", "", "", velerov1.PodVolumePhaseInProgress)
	for kind, moving := range map[string]struct {
		client.Object
		end func()
	}{
		"PodVolumeBackup": {pod, func() { pod.Status.Phase, pod.Status.SnapshotID = velerov1.PodVolumePhaseFailed, "s1" }},
		"DataUpload":      {upload, func() { upload.Status.Phase, upload.Status.SnapshotID = "Failed", "s1" }},
	} {
		b := newBed(t, newBackup(velerov1.BackupPhaseFailed), newRequest("d"), moving.Object)
		b.fillBucket(newBackup(velerov1.BackupPhaseFailed))
		b.r.Tries = 0
		r := b.serveRepositories("n/s1")
		require.Equal(t, Later, b.processRequest("d"))
		require.Contains(t, b.readRequest("d").Status.Errors[0], kind+" live is InProgress")
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(moving.Object), moving.Object))
		moving.end()
		require.NoError(t, b.client.Update(t.Context(), moving.Object))
		b.clock.Step(time.Minute)
		require.Equal(t, Done, b.processRequest("d"))
		require.Empty(t, r.has)
	}
}

// Snapshots of restic are in repositories that nothing here opens.
func TestABackupOfResticStays(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	r := b.serveRepositories()
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "["+listed("n", "s1", "Completed")+`,
	 {"spec":{"pod":{"namespace":"n","name":"p"},"volume":"old","uploaderType":"restic"},"status":{"phase":"Completed","snapshotID":"r"}}]`))
	require.Equal(t, Done, b.processRequest("d"))
	require.Contains(t, b.readRequest("d").Status.Errors[0], "cannot remove: 1 PodVolumeBackup (such as PodVolumeBackup of volume old of pod n/p)")
	require.Equal(t, velerov1.BackupPhaseCompleted, b.readBackup().Status.Phase)
	require.Zero(t, r.calls)
}

// Another process holds the deletion by now: it asks for the rest.
func TestADeletionThatWasTakenOverForgetsNothing(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	r := b.serveRepositories()
	var all []string
	for i := range 501 {
		all = append(all, listed("n", fmt.Sprintf("s%d", i), "Completed"))
	}
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "["+strings.Join(all, ",")+"]"))
	b.confirm = func() error {
		if r.calls == 1 {
			return errors.New("taken over")
		}
		return nil
	}
	b.processRequest("d")
	require.Equal(t, 1, r.calls)
	require.NotNil(t, b.readBackup())
}
