package control_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// startWaiting has Pod web-0 be restored: its init container waits for the data.
func (b *bed) startWaiting() {
	b.t.Helper()
	pod := newPod("web-0", "")
	b.update(pod, func() { pod.Spec.InitContainers = []corev1.Container{{Name: "restore-wait"}} })
	b.setPod(func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodPending
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "restore-wait", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
}

func TestARestoreIsMovedByAPod(t *testing.T) {
	r := newRestore("r-1", "data")
	r.Spec.UploaderSettings = map[string]string{"Overwrite": "true", "ParallelFilesDownload": "100"}
	b := newBed(t, r)
	b.startWaiting()
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
	require.Equal(t, "node-1", r.Status.Node)
	pod := b.mover("r-1")
	require.Equal(t, "node-1", pod.Spec.NodeName)
	require.False(t, pod.Spec.Containers[0].VolumeMounts[2].ReadOnly)
	line := strings.Join(pod.Spec.Containers[0].Args, " ")
	require.Contains(t, line, "--namespace source ", "the repository is that of the namespace it was backed up in")
	require.Contains(t, line, "--snapshot snapshot-1 --target /volume --done-file restore-uid --overwrite --parallel 64")

	b.run("r-1")
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseInProgress, r.Status.Phase)
	b.end("r-1", outcome.Result{
		Phase: outcome.Completed, SnapshotID: "snapshot-1", Bytes: 9, Rules: map[outcome.Rule]int64{outcome.Attributes: 9}, Entries: []outcome.Entry{{Path: "etc/app", Rule: outcome.Attributes}},
	})
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseCompleted, r.Status.Phase)
	require.Equal(t, "entries that had ACLs or other extended attributes, which are lost: 9; etc/app", r.Status.Message)
	require.Equal(t, velerov1.DataMoveOperationProgress{BytesDone: 9, TotalBytes: 9}, r.Status.Progress)
	b.requireNoMover("r-1")
	repository := &velerov1.BackupRepository{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "source-default-kopia"}, repository))
}

// TestARestoreWaitsForItsPod: until the Pod waits on a node, nothing is there to be filled.
func TestARestoreWaitsForItsPod(t *testing.T) {
	r := newRestore("r-1", "data")
	b := newBed(t, r)
	b.startWaiting()
	b.setPod(func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = nil })
	require.Equal(t, 5*time.Second, b.step(r))
	require.Empty(t, r.Status.Phase)
	b.clock.Step(24 * time.Hour) // the operation's own timeout ends it
	b.startWaiting()
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
	require.NotNil(t, b.mover("r-1"), "its mover has its time from the acceptance on")
}

// podReader counts how often a Pod is read.
type podReader struct {
	client.Reader
	pods int
}

func (r *podReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, ok := o.(*corev1.Pod); ok && key.Namespace == "shop" {
		r.pods++
	}
	return r.Reader.Get(ctx, key, o, options...)
}

// TestARestoreInTheQueueReadsNothing: there may be hundreds, which look for a slot every few seconds.
func TestARestoreInTheQueueReadsNothing(t *testing.T) {
	first, second := newRestore("r-1", "data"), newRestore("r-2", "scratch")
	b := newBed(t, first, second)
	reader := &podReader{Reader: b.client}
	b.configure(func(c *control.Config) { c.Reader, c.PerNode = reader, 1 })
	b.startWaiting()
	b.step(first)
	b.step(second)
	before := reader.pods
	for range 10 {
		require.Equal(t, 5*time.Second, b.step(second))
	}
	require.Equal(t, before, reader.pods)
	b.end("r-1", outcome.Result{Phase: outcome.Completed})
	b.step(first)
	b.step(second)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, second.Status.Phase)
}

// TestARequestSaysWhatItsPodWaitsFor: nothing ends a request whose Pod cannot start, so that its message is what a user
// has to go by.
func TestARequestSaysWhatItsPodWaitsFor(t *testing.T) {
	r := newRestore("r-1", "data")
	b := newBed(t, r)
	b.startWaiting()
	b.setPod(func(pod *corev1.Pod) {
		pod.Status.InitContainerStatuses = nil
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "claim data is not found"}}
	})
	require.Equal(t, 5*time.Second, b.step(r))
	require.Equal(t, "the Pod is not scheduled: claim data is not found", r.Status.Message)
	require.Empty(t, r.Status.Phase)
	before := b.version(r)
	b.step(r)
	require.Equal(t, before, b.version(r), "it is written once")

	b.setPod(func(pod *corev1.Pod) {
		pod.Status.Conditions = nil
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: "other", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}},
			{Name: "restore-wait", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no pull secret"}}},
		}
	})
	b.step(r)
	const waits = "the Pod's init container restore-wait does not run: ImagePullBackOff: no pull secret"
	require.Equal(t, waits, r.Status.Message)
	t.Run("until it is canceled", func(t *testing.T) {
		canceled := r.DeepCopy()
		canceled.Name, canceled.ResourceVersion, canceled.UID, canceled.Spec.Cancel = "r-2", "", "", true
		require.NoError(t, b.client.Create(t.Context(), canceled))
		b.step(canceled)
		require.Equal(t, "canceled before it began: "+waits, canceled.Status.Message)
	})
	b.startWaiting()
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
	require.Empty(t, r.Status.Message)
}

// TestAVolumeThatIsNotEmptyHasARemedy: the claims of an application that was deleted are often there.
func TestAVolumeThatIsNotEmptyHasARemedy(t *testing.T) {
	r := newRestore("r-1", "data")
	b := newBed(t, r)
	b.startWaiting()
	b.step(r)
	b.run("r-1")
	b.end("r-1", outcome.Result{Phase: outcome.Failed, Message: "the target is not empty", NotEmpty: true})
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.Message, "the target is not empty; delete the Pod")
	require.Contains(t, r.Status.Message, "holdfast.io/overwrite-volumes")
}

func TestWhichRestoresAreRefused(t *testing.T) {
	for message, change := range map[string]func(*bed, *velerov1.PodVolumeRestore){
		"Pod shop/web-1 is gone": func(_ *bed, r *velerov1.PodVolumeRestore) { r.Spec.Pod.Name = "web-1" },
		"is another one":         func(_ *bed, r *velerov1.PodVolumeRestore) { r.Spec.Pod.UID = "old" },
		"has ended": func(b *bed, _ *velerov1.PodVolumeRestore) {
			b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		},
		"there is no owner": func(_ *bed, r *velerov1.PodVolumeRestore) { r.OwnerReferences = nil },
		"no init container restore-wait": func(b *bed, _ *velerov1.PodVolumeRestore) {
			pod := newPod("web-0", "")
			b.update(pod, func() { pod.Spec.InitContainers = nil })
		},
	} {
		t.Run(message, func(t *testing.T) {
			r := newRestore("r-1", "data")
			b := newBed(t)
			b.startWaiting()
			change(b, r)
			require.NoError(t, b.client.Create(t.Context(), r))
			b.step(r)
			require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase)
			require.Contains(t, r.Status.Message, message)
			b.requireNoMover("r-1")
		})
	}
}

func TestCancel(t *testing.T) {
	cancel := func(b *bed, r *velerov1.PodVolumeBackup) { b.update(r, func() { r.Spec.Cancel = true }) }
	deletePod := func(b *bed) { // its kubelet needs time
		pod := b.mover("b-1")
		b.update(pod, func() { pod.Finalizers = []string{"test/kubelet"} })
	}
	t.Run("before it was accepted", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		r.Spec.Cancel = true
		b := newBed(t, r)
		b.step(r)
		b.requireEnd(r, velerov1.PodVolumePhaseCanceled, "before it began")
	})
	t.Run("before the Pod was made", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		r.Status.Phase = velerov1.PodVolumePhaseAccepted
		r.Spec.Cancel = true
		b := newBed(t, r)
		b.step(r)
		b.requireEnd(r, velerov1.PodVolumePhaseCanceled, "canceled")
	})
	t.Run("while it runs", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		b.step(r)
		deletePod(b)
		cancel(b, r)
		require.Equal(t, 5*time.Second, b.step(r))
		require.Equal(t, velerov1.PodVolumePhaseCanceling, r.Status.Phase)
		require.NotNil(t, b.mover("b-1").DeletionTimestamp)
		b.end("b-1", outcome.Result{Phase: outcome.Canceled, Message: "told to stop"})
		b.step(r)
		require.Equal(t, velerov1.PodVolumePhaseCanceled, r.Status.Phase)
		require.Equal(t, "told to stop", r.Status.Message)
	})
	t.Run("and the Pod is gone", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		b.step(r)
		cancel(b, r)
		b.step(r)
		b.requireEnd(r, velerov1.PodVolumePhaseCanceled, "canceled")
	})
	t.Run("and the mover is killed", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		b.terminate("b-1", corev1.PodFailed, corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 143})
		cancel(b, r)
		b.step(r)
		b.requireEnd(r, velerov1.PodVolumePhaseCanceled, "canceled")
	})
	t.Run("too late", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		b.step(r)
		b.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s"})
		cancel(b, r)
		b.step(r)
		b.requireEnd(r, velerov1.PodVolumePhaseCompleted, "")
		require.Equal(t, "s", r.Status.SnapshotID)
	})
	t.Run("and the node is lost", func(t *testing.T) {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		deletePod(b)
		cancel(b, r)
		b.step(r)
		b.clock.SetTime(b.mover("b-1").DeletionTimestamp.Add(5*time.Minute + time.Second))
		b.step(r)
		require.Equal(t, velerov1.PodVolumePhaseCanceled, r.Status.Phase)
	})
}

// TestARequestThatIsDeletedTakesItsMoverAlong also when its deletion waits for something.
func TestARequestThatIsDeletedTakesItsMoverAlong(t *testing.T) {
	r := newBackup("b-1", "scratch")
	r.Finalizers = []string{"test/wait"}
	b := newBed(t, r)
	b.step(r)
	require.NoError(t, b.client.Delete(t.Context(), r))
	b.step(r)
	b.requireNoMover("b-1")
	fresh := newBackup("b-2", "scratch")
	fresh.Finalizers = []string{"test/wait"}
	require.NoError(t, b.client.Create(t.Context(), fresh))
	require.NoError(t, b.client.Delete(t.Context(), fresh))
	b.step(fresh)
	require.Empty(t, fresh.Status.Phase)
}

func TestARepositoryThatCannotBeOpenedIsNotReady(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	for _, c := range []struct {
		result outcome.Result
		phase  velerov1.BackupRepositoryPhase
	}{
		{outcome.Result{Phase: outcome.Failed, Message: "disk error"}, ""},
		{outcome.Result{Phase: outcome.Failed, Message: "wrong password", Unopened: true}, velerov1.BackupRepositoryPhaseNotReady},
		{outcome.Result{Phase: outcome.Failed, Message: "disk error"}, velerov1.BackupRepositoryPhaseNotReady},
		{outcome.Result{Phase: outcome.Completed, SnapshotID: "s"}, velerov1.BackupRepositoryPhaseReady},
	} {
		b.update(r, func() { r.Status = velerov1.PodVolumeBackupStatus{} })
		b.step(r)
		b.run("b-1")
		b.end("b-1", c.result)
		b.step(r)
		found := &velerov1.BackupRepository{}
		err := b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "shop-default-kopia"}, found)
		require.Equal(t, c.phase == "", err != nil, "%v", err)
		require.Equal(t, c.phase, found.Status.Phase)
		if c.phase == velerov1.BackupRepositoryPhaseNotReady {
			require.Equal(t, "wrong password", found.Status.Message)
		} else {
			require.Empty(t, found.Status.Message)
		}
	}
}

func TestThePasswordOfTheRepositoriesStays(t *testing.T) {
	for password, message := range map[string]string{"mine\n": "", " ": "has no password"} {
		r := newBackup("b-1", "scratch")
		b := newBed(t, r, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "velero-repo-credentials"}, Data: map[string][]byte{"repository-password": []byte(password)},
		})
		b.step(r)
		if message != "" {
			require.Contains(t, r.Status.Message, message)
			continue
		}
		require.Equal(t, "mine", string(b.secret("b-1").Data["password"]))
	}
}

// Single files go into the volume of a Pod that runs, and nothing tells it.
func TestFilesAreRestoredIntoAPodThatRuns(t *testing.T) {
	r := newRestore("r-1", "data")
	r.Spec.UploaderSettings = map[string]string{"Paths": `["etc, x/$(HOME)","-a\nb"]`, "Overwrite": "true"}
	b := newBed(t, r)
	b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
	require.Equal(t, 5*time.Second, b.step(r))
	require.Equal(t, "the Pod does not run", r.Status.Message)
	b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
	require.Equal(t, "node-1", b.mover("r-1").Spec.NodeName)
	args := b.mover("r-1").Spec.Containers[0].Args
	require.Contains(t, strings.Join(args, " "), "--target /volume --overwrite --path=")
	require.Contains(t, args, "--path=etc, x/$$(HOME)", "a kubelet would put the variable's value there")
	require.Contains(t, args, "--path=-a\nb")
	require.NotContains(t, args, "--done-file")
}

// A request whose paths cannot be read would restore the whole volume over that of a Pod that runs.
func TestPathsThatCannotBeReadAreRefused(t *testing.T) {
	for _, paths := range []string{"", "etc", "[]", `[""]`, `["../etc"]`, `["."]`} {
		r := newRestore("r-1", "data")
		r.Spec.UploaderSettings = map[string]string{"Paths": paths, "Overwrite": "true"}
		b := newBed(t, r)
		b.step(r)
		require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase, paths)
		require.Contains(t, r.Status.Message, "spec.uploaderSettings[Paths]: ")
		b.requireNoMover("r-1")
	}
}

// endings are what may happen to Pod web-0 before its mover ends, and what the message of its request says then.
var endings = map[string]struct {
	change  func(*bed)
	message string
}{
	"runs":  {func(*bed) {}, ""},
	"ended": {func(b *bed) { b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }) }, "Pod shop/web-0 has ended: whether"},
	"gone":  {func(b *bed) { require.NoError(b.t, b.client.Delete(b.t.Context(), newPod("web-0", ""))) }, "Pod shop/web-0 is gone: whether"},
	"being deleted": {func(b *bed) {
		pod := newPod("web-0", "")
		b.update(pod, func() { pod.Finalizers = []string{"test/kubelet"} })
		require.NoError(b.t, b.client.Delete(b.t.Context(), pod))
	}, "Pod shop/web-0 is being deleted: whether"},
	"replaced": {func(b *bed) {
		pod := newPod("web-0", "node-1")
		require.NoError(b.t, b.client.Delete(b.t.Context(), pod))
		pod.UID = "next"
		require.NoError(b.t, b.client.Create(b.t.Context(), pod))
	}, "Pod shop/web-0 is another one than that of the request: whether"},
}

// What was written where the volume of a Pod that ended had been is not in the volume.
func TestRestoresOfAPodThatEndsMeanwhileFail(t *testing.T) {
	for kind, settings := range map[string]map[string]string{"files": {"Paths": `["etc"]`, "Overwrite": "true"}, "all": nil} {
		for name, ending := range endings {
			t.Run(kind+" "+name, func(t *testing.T) {
				r := newRestore("r-1", "data")
				r.Spec.UploaderSettings = settings
				b := newBed(t, r)
				if kind == "all" {
					b.startWaiting()
				}
				b.step(r)
				b.run("r-1")
				b.step(r)
				b.end("r-1", outcome.Result{Phase: outcome.Completed, Files: 1})
				ending.change(b)
				b.step(r)
				require.Contains(t, r.Status.Message, ending.message)
				require.Equal(t, ending.message == "", r.Status.Phase == velerov1.PodVolumePhaseCompleted, r.Status.Phase)
				b.requireNoMover("r-1")
			})
		}
	}
}

// A Pod whose init container found the data had the volume, and may end before its mover is looked at.
func TestARestoredPodMayEndAtOnce(t *testing.T) {
	for code, phase := range map[int32]velerov1.PodVolumePhase{0: velerov1.PodVolumePhaseCompleted, 1: velerov1.PodVolumePhaseFailed} {
		r := newRestore("r-1", "data")
		b := newBed(t, r)
		b.startWaiting()
		b.step(r)
		b.end("r-1", outcome.Result{Phase: outcome.Completed, Files: 1})
		b.setPod(func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodSucceeded
			pod.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
		})
		b.step(r)
		require.Equal(t, phase, r.Status.Phase, r.Status.Message)
	}
}

// What a backup finds empty is not the volume if its Pod has ended. Its snapshot is noted, so that it is deleted with the backup.
func TestAnEmptyBackupOfAPodThatEndsFails(t *testing.T) {
	for _, tc := range []struct {
		found int64 // files
		gone  bool
		phase velerov1.PodVolumePhase
	}{{0, false, velerov1.PodVolumePhaseCompleted}, {1, true, velerov1.PodVolumePhaseCompleted}, {0, true, velerov1.PodVolumePhaseFailed}} {
		r := newBackup("b-1", "data")
		b := newBed(t, r)
		b.step(r)
		b.run("b-1")
		b.step(r)
		b.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1", Files: tc.found, Directories: 1})
		if tc.gone {
			require.NoError(t, b.client.Delete(t.Context(), newPod("web-0", "")))
		}
		b.step(r)
		require.Equal(t, tc.phase, r.Status.Phase, r.Status.Message)
		require.Equal(t, "s-1", r.Status.SnapshotID)
		b.requireNoMover("b-1")
	}
}
