package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

func TestABackupIsMovedByAPod(t *testing.T) {
	r := newBackup("b-1", "data")
	b := newBed(t, r)
	require.Equal(t, prepareTimeout, b.step(r))
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
	require.Equal(t, b.clock.Now().Unix(), r.Status.AcceptedTimestamp.Unix())

	pod := b.mover("b-1")
	require.Equal(t, "node-1", pod.Spec.NodeName)
	require.Equal(t, "/var/lib/kubelet/pods/web-0-uid/volumes/kubernetes.io~csi/pv-1/mount", pod.Spec.Volumes[2].HostPath.Path)
	require.True(t, pod.Spec.Containers[0].VolumeMounts[2].ReadOnly)
	require.True(t, metav1.IsControlledBy(pod, r))
	require.Equal(t, "backup", pod.Labels["holdfast.io/mover"])
	require.Equal(t, "b-1", pod.Labels["velero.io/pod-volume-backup"])
	require.Equal(t, []string{
		"move", "upload", "--location", "/mover/location.yaml", "--password-file", "/mover/password", "--namespace", "shop", "--cache-dir", "/cache",
		"--result-file", "/dev/termination-log", "--create-repository", "--pod", "web-0", "--volume", "data-web-0", "--source", "/volume", "--claim-uid", "claim-uid",
	}, pod.Spec.Containers[0].Args)
	secret := b.secret("b-1")
	require.True(t, metav1.IsControlledBy(secret, r))
	require.Equal(t, secret.Data["password"], b.secret("velero-repo-credentials").Data["repository-password"])

	b.run("b-1")
	require.Equal(t, 10*time.Second, b.step(r))
	require.Equal(t, velerov1.PodVolumePhaseInProgress, r.Status.Phase)
	require.Zero(t, r.Status.Progress, "the log cannot be read")
	b.log = "{\"progress\":{\"bytesDone\":5,\"bytesTotal\":9}}\n{\"level\":\"INFO\"}\n"
	b.step(r)
	require.Equal(t, velerov1.DataMoveOperationProgress{BytesDone: 5, TotalBytes: 9}, r.Status.Progress)

	b.clock.Step(time.Minute)
	b.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1", Bytes: 9, IncrementalBytes: 4})
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseCompleted, "")
	require.Equal(t, "s-1", r.Status.SnapshotID)
	require.EqualValues(t, 4, r.Status.IncrementalBytes)
	require.Equal(t, velerov1.DataMoveOperationProgress{BytesDone: 9, TotalBytes: 9}, r.Status.Progress)
	require.Equal(t, time.Minute, r.Status.CompletionTimestamp.Sub(r.Status.StartTimestamp.Time))
	require.Zero(t, b.step(r), "nothing happens any more")

	repository := &velerov1.BackupRepository{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: "shop-default-kopia"}, repository))
	require.Equal(t, velerov1.BackupRepositoryPhaseReady, repository.Status.Phase)
	require.Equal(t, "shop", repository.Labels["velero.io/volume-namespace"])
	count, err := testutil.GatherAndCount(b.registry, "podVolume_pod_volume_backup_enqueue_count", "podVolume_pod_volume_backup_dequeue_count", "holdfast_volume_transfers_total")
	require.NoError(t, err)
	require.Equal(t, 3, count)
}

func TestAControllerGoesOnWhereAnotherStopped(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	pod := b.mover("b-1")
	b.restart()
	b.step(r)
	require.Equal(t, pod.UID, b.mover("b-1").UID)
	b.run("b-1")
	b.restart()
	b.step(r)
	b.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1"})
	b.restart()
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseCompleted, "")
}

// TestAMoverIsStartedAfterAKill checks every point between the creation of the Secret and that of the Pod.
func TestAMoverIsStartedAfterAKill(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	killed := errors.New("killed")
	b.refuse = func(o client.Object) error {
		if _, ok := o.(*corev1.Pod); ok {
			return killed
		}
		return nil
	}
	for range 2 { // the acceptance comes first
		_, _ = b.controller.Reconcile(t.Context(), r, client.ObjectKeyFromObject(r))
	}
	require.NotNil(t, b.secret("b-1"))
	require.Nil(t, b.mover("b-1"))
	b.refuse = nil
	b.restart()
	b.step(r)
	require.NotNil(t, b.mover("b-1"))
}

func TestHowABackupFails(t *testing.T) {
	terminated := func(how corev1.ContainerStateTerminated) func(*bed) {
		return func(b *bed) { b.run("b-1"); b.terminate("b-1", corev1.PodFailed, how) }
	}
	ended := func(result outcome.Result) func(*bed) {
		return func(b *bed) { b.run("b-1"); b.end("b-1", result) }
	}
	for name, c := range map[string]struct {
		happens  func(*bed)
		message  string
		snapshot string
	}{
		"the mover fails":          {ended(outcome.Result{Phase: outcome.Failed, Message: "the bucket is full"}), "the bucket is full", ""},
		"a file cannot be read":    {ended(outcome.Result{Phase: outcome.PartiallyFailed, SnapshotID: "s", Message: "entries that are not whole: 1", Entries: []outcome.Entry{{Path: "a", Rule: outcome.Socket}, {Path: "b", Rule: outcome.Unreadable, Error: "EIO"}}}), "not whole: 1; b: unreadable: EIO", "s"},
		"no snapshot":              {ended(outcome.Result{Phase: outcome.Completed}), "", ""},
		"stopped by somebody":      {ended(outcome.Result{Phase: outcome.Canceled, Message: "told to stop"}), "the mover Pod was stopped: told to stop", ""},
		"out of memory":            {terminated(corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}), "without a result: OOMKilled (exit code 137)", ""},
		"text instead of a result": {terminated(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, Message: "unknown flag"}), "exit code 2) unknown flag", ""},
		"evicted": {func(b *bed) {
			b.setStatus("b-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk"})
		}, "Evicted disk", ""},
		"the image cannot be pulled": {func(b *bed) { b.wait("b-1", "ImagePullBackOff") }, "cannot start: ImagePullBackOff: because", ""},
		"it does not start":          {func(b *bed) { b.wait("b-1", "ContainerCreating"); b.clock.Step(prepareTimeout) }, "did not start in 30m0s: ContainerCreating: because; its volume is expected at /var/lib/kubelet/pods/web-0-uid/volumes/kubernetes.io~empty-dir/scratch", ""},
		"its node does not answer": {func(b *bed) {
			b.setStatus("b-1", corev1.PodStatus{Phase: corev1.PodPending})
			b.clock.Step(prepareTimeout)
		}, "node node-1 has not begun", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBackup("b-1", "scratch")
			b := newBed(t, r)
			b.step(r)
			c.happens(b)
			b.step(r)
			b.requireEnd(r, velerov1.PodVolumePhaseFailed, c.message)
			require.Equal(t, c.snapshot, r.Status.SnapshotID)
		})
	}
}

func TestAPodThatWaitsForItsImageGetsItsTime(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	b.wait("b-1", "ErrImagePull")
	b.clock.Step(prepareTimeout - time.Second)
	require.Equal(t, time.Second, b.step(r))
	require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
}

// TestAnImagePullThatFailsOnceFailsNoVolume: the kubelet tries again, and what can never be pulled is not waited for.
func TestAnImagePullThatFailsOnceFailsNoVolume(t *testing.T) {
	const patience = 3 * time.Minute
	for reason, waits := range map[string]bool{"ImagePullBackOff": true, "CreateContainerConfigError": true, "InvalidImageName": false, "ErrImageNeverPull": false} {
		t.Run(reason, func(t *testing.T) {
			r := newBackup("b-1", "scratch")
			b := newBed(t, r)
			b.step(r)
			pod := b.mover("b-1")
			b.update(pod, func() { pod.CreationTimestamp = metav1.NewTime(b.clock.Now()) })
			b.wait("b-1", reason)
			if waits {
				b.clock.Step(patience - time.Second)
				require.Equal(t, time.Second, b.step(r))
				require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
				b.clock.Step(time.Second)
			}
			b.step(r)
			b.requireEnd(r, velerov1.PodVolumePhaseFailed, "cannot start: "+reason)
		})
	}
}

// TestANodeWithoutRoomIsAskedAgain: Pods that end make room.
func TestANodeWithoutRoomIsAskedAgain(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	full := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "Pod was rejected"}
	pod := b.mover("b-1")
	b.update(pod, func() { pod.CreationTimestamp = metav1.NewTime(b.clock.Now()) })
	b.setStatus("b-1", full)
	require.Equal(t, 30*time.Second, b.step(r))
	b.clock.Step(30 * time.Second)
	b.step(r)
	require.Equal(t, corev1.PodPhase(""), b.mover("b-1").Status.Phase, "it is another one")
	b.setStatus("b-1", full)
	b.clock.Step(prepareTimeout)
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseFailed, "node node-1 had no room for the mover Pod in 30m0s: OutOfpods: Pod was rejected")
}

// TestAQuotaWithoutRoomIsAskedAgain: Pods that end make room.
func TestAQuotaWithoutRoomIsAskedAgain(t *testing.T) {
	for name, makesRoom := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			r := newBackup("b-1", "scratch")
			b := newBed(t, r)
			b.refusePods(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "b-1", errors.New("exceeded quota: pods, used: pods=9, limited: pods=9")))
			require.Equal(t, 30*time.Second, b.step(r))
			require.Equal(t, velerov1.PodVolumePhaseAccepted, r.Status.Phase)
			if !makesRoom {
				b.clock.Step(prepareTimeout - 30*time.Second)
				b.step(r)
				b.requireEnd(r, velerov1.PodVolumePhaseFailed, "the mover Pod was refused: pods \"b-1\" is forbidden: exceeded quota: pods")
				return
			}
			b.refuse = nil
			b.clock.Step(30 * time.Second)
			b.step(r)
			require.NotNil(t, b.mover("b-1"))
		})
	}
}

// TestARequestInTheQueueSaysSo: the backup gives up requests that nobody has seen, and no other.
func TestARequestInTheQueueSaysSo(t *testing.T) {
	first, second, third := newBackup("b-1", "scratch"), newBackup("b-2", "scratch"), newBackup("b-3", "scratch")
	b := newBed(t, first, second, third)
	b.configure(func(c *control.Config) { c.PerNode = 1 })
	b.step(first)
	require.Equal(t, 5*time.Second, b.step(second))
	require.Equal(t, velerov1.PodVolumePhase(""), second.Status.Phase)
	require.Contains(t, second.Status.Message, "--movers-per-node")
	now := time.Now()
	request := podvolume.BackupRequest(second)
	require.Empty(t, request.Failure(now))
	request = podvolume.BackupRequest(third)
	require.NotEmpty(t, request.Failure(now), "nobody has seen it for years")

	b.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s"})
	b.step(first)
	b.step(second)
	require.Equal(t, velerov1.PodVolumePhaseAccepted, second.Status.Phase)
	require.Empty(t, second.Status.Message)
}

// TestASidecarDoesNotKeepABackupOpen: a mesh injects containers that run on when the mover has ended.
func TestASidecarDoesNotKeepABackupOpen(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	b.run("b-1")
	b.step(r)
	b.terminate("b-1", corev1.PodRunning, corev1.ContainerStateTerminated{Message: `{"phase":"Completed","snapshotID":"s-1"}`})
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseCompleted, "")
}

func TestAResultIsFoundInTheLogToo(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	b.run("b-1")
	b.log = "{\"progress\":{\"bytesDone\":5,\"bytesTotal\":9}}\n{\"result\":{\"phase\":\"Completed\",\"snapshotID\":\"s-1\",\"bytes\":9}}\n"
	b.terminate("b-1", corev1.PodSucceeded, corev1.ContainerStateTerminated{})
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseCompleted, "")
	require.Equal(t, "s-1", r.Status.SnapshotID)
}

func TestAMoverPodThatIsDeletedFailsTheBackup(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	b.run("b-1")
	b.step(r)
	require.NoError(t, b.client.Delete(t.Context(), b.mover("b-1")))
	b.step(r)
	b.requireEnd(r, velerov1.PodVolumePhaseFailed, "the mover Pod was deleted")
}

// TestAMoverPodOfALostNodeFailsTheBackup: nobody says that the Pod has ended.
func TestAMoverPodOfALostNodeFailsTheBackup(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	b.step(r)
	b.run("b-1")
	pod := b.mover("b-1")
	b.update(pod, func() { pod.Finalizers = []string{"test/kubelet"} })
	require.NoError(t, b.client.Delete(t.Context(), pod))
	b.clock.SetTime(b.mover("b-1").DeletionTimestamp.Add(5 * time.Minute))
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseInProgress, r.Status.Phase, "it may still end")
	b.clock.Step(time.Second)
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.Message, "its node node-1 does not say that it has ended")
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*bed, *velerov1.PodVolumeBackup)
		message string
	}{
		"restic":             {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.UploaderType = "restic" }, "uploader type \"restic\" is not supported"},
		"no node":            {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.Node = "" }, "spec.node is required"},
		"another node":       {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.Node = "node-2" }, `on node "node-1" and not on "node-2"`},
		"a Pod that is gone": {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.Pod.Name = "web-1" }, "Pod shop/web-1 is gone"},
		"a replaced Pod":     {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.Pod.UID = "old" }, "is another one"},
		"no such volume":     {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.Volume = "x" }, `has no volume "x"`},
		"no location":        {func(_ *bed, r *velerov1.PodVolumeBackup) { r.Spec.BackupStorageLocation = "x" }, `backup storage location "x"`},
		"no image": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			b.configure(func(c *control.Config) { c.Movers.Image = "" })
		}, "--mover-image"},
		"Pod security": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			b.refusePods(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "b-1", errors.New(`violates PodSecurity "baseline:latest": hostPath volumes`)))
		}, "namespace velero lacks the label pod-security.kubernetes.io/enforce: privileged"},
		"a quota": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			b.refusePods(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "b-1", errors.New("failed quota: q: must specify limits.cpu")))
		}, "the mover Pod was refused: pods \"b-1\" is forbidden: failed quota"},
		"a Pod that ended": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
		}, "has ended"},
		"a Pod that does not run": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			b.setPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
		}, "does not run"},
		"somebody's Pod": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			require.NoError(b.t, b.client.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "b-1"}}))
		}, "exists and is not its mover"},
		"Velero's Pod": {func(b *bed, r *velerov1.PodVolumeBackup) {
			require.NoError(b.t, b.client.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: server, Name: "b-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, velerov1.GroupVersion.WithKind("PodVolumeBackup"))},
			}}))
		}, "is Velero's node-agent running?"},
		"somebody's Secret": {func(b *bed, _ *velerov1.PodVolumeBackup) {
			require.NoError(b.t, b.client.Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "b-1"}}))
		}, "exists and is not its mover's"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBackup("b-1", "scratch")
			b := newBed(t)
			c.change(b, r)
			require.NoError(t, b.client.Create(t.Context(), r))
			b.step(r)
			require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase)
			require.Contains(t, r.Status.Message, c.message)
			require.Equal(t, strings.HasSuffix(name, "'s Pod"), b.mover("b-1") != nil)
			require.Equal(t, name == "somebody's Secret", b.secret("b-1") != nil)
		})
	}
}

// TestAnAPIServerThatIsAwayIsNoFailure: the call is repeated until the mover has had its time.
func TestAnAPIServerThatIsAwayIsNoFailure(t *testing.T) {
	r := newBackup("b-1", "scratch")
	b := newBed(t, r)
	away := apierrors.NewServiceUnavailable("away")
	b.refusePods(away)
	_, err := b.controller.Reconcile(t.Context(), r, client.ObjectKeyFromObject(r))
	require.NoError(t, err)
	_, err = b.controller.Reconcile(t.Context(), r, client.ObjectKeyFromObject(r))
	require.ErrorIs(t, err, away)
	b.clock.Step(prepareTimeout)
	b.step(r)
	require.Equal(t, velerov1.PodVolumePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.Message, "could not be made in 30m0s")
}

func TestLimits(t *testing.T) {
	var all []*velerov1.PodVolumeBackup
	b := newBed(t, newPod("web-9", "node-2"))
	b.configure(func(c *control.Config) { c.PerNode, c.Total = 2, 3 })
	accepted := func() (names string) {
		for _, r := range all {
			b.step(r)
			if r.Status.Phase == velerov1.PodVolumePhaseAccepted {
				names += r.Name + " "
			}
		}
		return names
	}
	for i := range 6 {
		r := newBackup(fmt.Sprintf("b-%d", i), "scratch")
		if i > 3 {
			r.Spec.Node, r.Spec.Pod.Name, r.Spec.Pod.UID = "node-2", "web-9", "web-9-uid"
		}
		require.NoError(t, b.client.Create(t.Context(), r))
		all = append(all, r)
	}
	require.Equal(t, "b-0 b-1 b-4 ", accepted())
	require.Equal(t, 5*time.Second, b.step(all[5]))
	b.end("b-4", outcome.Result{Phase: outcome.Completed, SnapshotID: "s"})
	require.Equal(t, "b-0 b-1 b-5 ", accepted())
	require.NoError(t, b.client.Delete(t.Context(), all[0])) // its slot is free
	require.Equal(t, "b-1 b-2 b-5 ", accepted()[len("b-0 "):])
}
