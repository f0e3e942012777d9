package podvolume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

// backupBed is a backup of Pods in namespace a.
type backupBed struct {
	podvolume.API
	clock  *clocktesting.FakeClock
	backup *velerov1.Backup
	mover  podvolume.Mover
}

func newBackupBed(t *testing.T) *backupBed {
	t.Helper()
	api, clock := newAPI(t)
	b := &backupBed{API: api, clock: clock, backup: &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "uid-b"}}}
	b.backup.Spec.StorageLocation = "main"
	b.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	return b
}

func (b *backupBed) create(t *testing.T, o client.Object) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), o))
}

// newBackupper is what one holder of the backup works with.
func (b *backupBed) newBackupper() *podvolume.Backupper {
	return &podvolume.Backupper{API: b.API, Backup: b.backup, Claims: true, Mover: b.mover, Timeout: podvolume.DefaultTimeout}
}

// addPod adds a running Pod that mounts its volumes.
func (b *backupBed) addPod(t *testing.T, name string, change func(p *corev1.Pod), volumes ...corev1.Volume) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: map[string]string{}}}
	pod.Spec.NodeName, pod.Status.Phase = "n1", corev1.PodRunning
	pod.Spec.Volumes = volumes
	main := corev1.Container{Name: "main", Image: "i"}
	for _, v := range volumes {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	pod.Spec.Containers = []corev1.Container{main}
	if change != nil {
		change(pod)
	}
	b.create(t, pod)
	return pod
}

// chooses has the Pod's annotation name volumes.
func chooses(names string) func(p *corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[velerov1.AnnotationBackupVolumes] = names }
}

func scratch(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func mounts(claim string) corev1.Volume {
	return corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// addClaim adds a claim that is bound to a volume.
func (b *backupBed) addClaim(t *testing.T, name string, change func(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)) {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	c.Spec.VolumeName, c.Status.Phase = "pv-"+name, corev1.ClaimBound
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, Labels: map[string]string{"zone": "z"}}}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if change != nil {
		change(c, pv)
	}
	b.create(t, c)
	b.create(t, pv)
}

// start calls the action for a Pod, and returns its messages, "level: text".
func (b *backupBed) start(t *testing.T, by *podvolume.Backupper, pod *corev1.Pod) (operation string, notes []string) {
	t.Helper()
	typed := pod.DeepCopy()
	typed.APIVersion, typed.Kind = "v1", "Pod"
	raw, err := json.Marshal(typed)
	require.NoError(t, err)
	a := by.Action()
	require.True(t, a.(interface{ Concerns(raw []byte) bool }).Concerns(raw))
	object := action.FromJSON(raw)
	r, err := a.(action.BackupStarter).Start(t.Context(), object, nil, "key of "+pod.Name)
	require.NoError(t, err)
	require.Same(t, object, r.Object)
	for _, n := range r.Notes {
		notes = append(notes, fmt.Sprintf("%s: %s", n.Level, n.Message))
	}
	return r.OperationID, notes
}

// requested are the requests, "pod/volume".
func (b *backupBed) requested(t *testing.T) (all []string) {
	t.Helper()
	list, err := b.ListBackups(t.Context(), podvolume.BackupLabels("uid-b"))
	require.NoError(t, err)
	for i := range list {
		all = append(all, list[i].Spec.Pod.Name+"/"+list[i].Spec.Volume)
	}
	slices.Sort(all)
	return all
}

// A request is Velero's: its agent serves it, and Velero restores by it.
func TestARequestIsVelerosOwn(t *testing.T) {
	b := newBackupBed(t)
	b.backup.Spec.UploaderConfig = &velerov1.UploaderConfigForBackup{ParallelFilesUpload: 3}
	b.addClaim(t, "data", nil)
	pod := b.addPod(t, "p", chooses("data, scratch"), mounts("data"), scratch("scratch"), scratch("other"))
	id, notes := b.start(t, b.newBackupper(), pod)
	require.Empty(t, notes)
	require.Equal(t, podvolume.BackupOperationID(podvolume.Hash("key of p"), 2), id)
	list, err := b.ListBackups(t.Context(), map[string]string{velerov1.LabelPVCUID: b.claimUID(t, "data")})
	require.NoError(t, err)
	require.Len(t, list, 1)
	got := &list[0]
	require.Equal(t, podvolume.RequestName("b", "key of p/data"), got.Name)
	require.Equal(t, []metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Backup", Name: "b", UID: "uid-b", Controller: ptr.To(true)}}, got.OwnerReferences)
	require.Equal(t, "b uid-b", got.Labels["velero.io/backup-name"]+" "+got.Labels["velero.io/backup-uid"])
	require.Equal(t, "data", got.Annotations["velero.io/pvc-name"])
	require.JSONEq(t, `{"name":"pv-data","reclaimPolicy":"Delete","labels":{"zone":"z"}}`, got.Annotations[podvolume.AnnotationVolume])
	require.Equal(t, velerov1.PodVolumeBackupSpec{
		Node: "n1", Pod: corev1.ObjectReference{Kind: "Pod", Namespace: "a", Name: "p", UID: pod.UID}, Volume: "data", BackupStorageLocation: "main", UploaderType: "kopia", UploaderSettings: map[string]string{"ParallelFilesUpload": "3"},
		Tags: map[string]string{"backup": "b", "backup-uid": "uid-b", "pod": "p", "pod-uid": string(pod.UID), "ns": "a", "volume": "data", "pvc-uid": b.claimUID(t, "data")},
	}, got.Spec)
	require.Equal(t, []string{"p/data", "p/scratch"}, b.requested(t))
}

func (b *backupBed) claimUID(t *testing.T, name string) string {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: name}, c))
	return string(c.UID)
}

// By default all volumes are chosen whose data is the Pod's own, but for those that are opted out.
func TestVolumesThatAreChosenByDefault(t *testing.T) {
	b := newBackupBed(t)
	b.backup.Spec.DefaultVolumesToFsBackup = ptr.To(true)
	b.addClaim(t, "data", nil)
	b.addClaim(t, "p-generic", nil)
	source := func(name string, s corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: s}
	}
	pod := b.addPod(t, "p", func(p *corev1.Pod) {
		p.Annotations[velerov1.AnnotationBackupVolumesExcludes] = "cache"
		p.Annotations[velerov1.AnnotationBackupVolumes] = "absent" // of no concern
		init := corev1.Container{Name: "init", VolumeMounts: []corev1.VolumeMount{{Name: "seed"}}}
		p.Spec.InitContainers, p.Spec.Volumes = []corev1.Container{init}, append(p.Spec.Volumes, scratch("seed"), scratch("unused"), scratch(podvolume.WaitContainer))
	}, mounts("data"), scratch("cache"), source("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}),
		source("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), source("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
		source("token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}), source("api", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}),
		source("share", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), source("generic", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}))
	_, notes := b.start(t, b.newBackupper(), pod)
	require.Equal(t, []string{"info: volume unused: no file-system backup: no container mounts it, so that it has no data"}, notes)
	require.Equal(t, []string{"p/data", "p/generic", "p/seed", "p/share"}, b.requested(t))

	without := b.newBackupper()
	without.Claims = false
	_, notes = b.start(t, without, b.addPod(t, "q", nil, mounts("data"), scratch("own")))
	require.Equal(t, []string{"info: volume data: no file-system backup: the resources of the backup leave out claims"}, notes)
	require.Contains(t, b.requested(t), "q/own")
	require.NotContains(t, b.requested(t), "q/data", "the backup takes no claims")
	b.backup.Spec.DefaultVolumesToFsBackup = nil
	named := b.newBackupper()
	named.Claims = false
	_, notes = b.start(t, named, b.addPod(t, "r", chooses("data"), mounts("data")))
	require.Equal(t, []string{"warning: volume data: no file-system backup: the resources of the backup leave out claims"}, notes, "which was asked for")
}

// Each chosen volume that is not requested is accounted for (P10).
func TestAChosenVolumeThatIsNotTaken(t *testing.T) {
	pending := func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodPending, "" }
	for name, tt := range map[string]struct {
		change    func(p *corev1.Pod)
		volume    corev1.Volume
		claim     func(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
		byDefault bool
		agent     string // the node of a node-agent
		mover     podvolume.Mover
		want      string
	}{
		"no such volume": {chooses("typo"), scratch("v"), nil, false, "", "", "error: volume typo: no file-system backup: the pod has no volume of that name"},
		"the name of the claim": {chooses("db"), corev1.Volume{Name: "v", VolumeSource: mounts("db").VolumeSource}, nil, false, "", "",
			"error: volume db: no file-system backup: the pod has no volume of that name, which is the claim of volume v: name that"},
		"pending":                  {pending, scratch("v"), nil, true, "", "", "error: volume v: no file-system backup: the pod does not run: it is not scheduled; back up again once it runs, or name the volume in its annotation backup.velero.io/backup-volumes-excludes"},
		"pending, on a node":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, scratch("v"), nil, true, "", "", "error: volume v: no file-system backup: the pod does not run: it is Pending; back up again once it runs, or name the volume in its annotation backup.velero.io/backup-volumes-excludes"},
		"ended, of the node":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, scratch("v"), nil, true, "", "", "info: volume v: no file-system backup: the pod has ended, and what it had on its node may be gone"},
		"ended, of a claim":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, mounts("v"), nil, true, "", "", "error: volume v: no file-system backup: the pod has ended, and no running pod of the backup chooses claim v: delete the pod, or name the volume in its annotation backup.velero.io/backup-volumes-excludes, which leaves the claim to snapshots"},
		"ended, of a claim, named": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; chooses("v")(p) }, mounts("v"), nil, false, "", "", "error: volume v: no file-system backup: the pod has ended, and no running pod of the backup chooses claim v: delete the pod, or take the volume out of its annotation backup.velero.io/backup-volumes, which leaves the claim to snapshots"},
		"not mounted":              {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil }, mounts("v"), nil, true, "", "", "error: volume v: no file-system backup: no container mounts it, so that it is not on the node"},
		"unbound":                  {nil, mounts("v"), func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Spec.VolumeName = "" }, true, "", "", "error: volume v: no file-system backup: claim v is not bound to a volume"},
		"no claim":                 {nil, mounts("absent"), nil, true, "", "", "error: volume absent: no file-system backup: claim absent does not exist"},
		"a block device, named":    {chooses("v"), mounts("v"), asBlock, false, "", "", "error: volume v: no file-system backup: claim v is a block device, which has no file system to read"},
		"a block device":           {nil, mounts("v"), asBlock, true, "", "", "info: volume v: no file-system backup: claim v is a block device, which has no file system to read"},
		"a hostPath": {nil, mounts("v"), func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/x"}
		}, true, "", "", "warning: volume v: no file-system backup: the volume of claim v is a hostPath, which belongs to the node"},
		"a Secret, named": {chooses("v"), corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}}, nil, false, "", "",
			"warning: volume v: no file-system backup: its content comes from the API server"},
		"Velero's node-agent": {nil, scratch("v"), nil, true, "elsewhere", podvolume.MoverHoldfast,
			"error: volume v: no file-system backup: Velero's node-agent runs in namespace velero and would take the request: remove it, or set --volume-mover=velero"},
		"no node-agent": {nil, scratch("v"), nil, true, "elsewhere", podvolume.MoverVelero,
			"error: volume v: no file-system backup: no node-agent of Velero runs on node n1, and --volume-mover is velero"},
		"a node-agent on the node": {nil, scratch("v"), nil, true, "n1", podvolume.MoverVelero, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackupBed(t)
			b.backup.Spec.DefaultVolumesToFsBackup, b.mover = &tt.byDefault, tt.mover
			b.addClaim(t, "v", tt.claim)
			if tt.agent != "" {
				b.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "agent", Labels: map[string]string{"role": "node-agent"}},
					Spec: corev1.PodSpec{NodeName: tt.agent}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			}
			id, notes := b.start(t, b.newBackupper(), b.addPod(t, "p", tt.change, tt.volume))
			if tt.want == "" {
				require.Empty(t, notes)
				require.NotEmpty(t, id)
				return
			}
			require.Equal(t, []string{tt.want}, notes)
			require.Empty(t, id, "there is nothing to wait for")
			require.Empty(t, b.requested(t))
			taken, err := b.newBackupper().Takes(t.Context(), "a", "v", false)
			require.NoError(t, err)
			require.False(t, taken, "a snapshot may have the data")
		})
	}
}

func asBlock(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// A claim of several Pods is requested once: with the first running Pod that chooses it, whichever has
// its turn first, and whatever other Pods say. Claims alone answer the same.
func TestASharedClaimIsTakenOnce(t *testing.T) {
	b := newBackupBed(t)
	b.addClaim(t, "shared", nil)
	b.addPod(t, "a-out", nil, mounts("shared"))
	ended := b.addPod(t, "b-ended", func(p *corev1.Pod) { chooses("shared")(p); p.Status.Phase = corev1.PodSucceeded }, mounts("shared"))
	first, second := b.addPod(t, "c-in", chooses("shared"), mounts("shared")), b.addPod(t, "d-in", chooses("shared"), mounts("shared"))
	by := b.newBackupper()
	for _, final := range []bool{false, true} {
		taken, err := by.Takes(t.Context(), "a", "shared", final)
		require.Equal(t, !final, taken)
		require.Equal(t, final, err != nil, "nobody has requested it")
	}
	for _, pod := range []*corev1.Pod{ended, second} {
		id, notes := b.start(t, by, pod)
		require.Empty(t, id)
		require.Equal(t, []string{"info: volume shared: no file-system backup: claim shared is taken with pod c-in"}, notes)
	}
	id, notes := b.start(t, by, first)
	require.NotEmpty(t, id)
	require.Empty(t, notes)
	require.Equal(t, []string{"c-in/shared"}, b.requested(t))
	for _, holder := range []*podvolume.Backupper{by, b.newBackupper()} {
		taken, err := holder.Takes(t.Context(), "a", "shared", true)
		require.NoError(t, err)
		require.True(t, taken)
	}
	taken, err := by.Takes(t.Context(), "a", "other", false)
	require.NoError(t, err)
	require.False(t, taken)
}

// A claim waits for no Pod that the backup leaves out.
func TestAPodThatIsNotInTheBackupTakesNoClaim(t *testing.T) {
	b := newBackupBed(t)
	b.addClaim(t, "data", nil)
	b.addPod(t, "p", chooses("data"), mounts("data"))
	by := b.newBackupper()
	by.Selects = func(pod *corev1.Pod) bool { return pod.Name != "p" }
	taken, err := by.Takes(t.Context(), "a", "data", false)
	require.NoError(t, err)
	require.False(t, taken)
}

// A repeated call finds the requests of the call before, whatever became of the Pod since; the next
// holder takes the claim with no other Pod.
func TestARepeatedCallMakesNoSecondRequest(t *testing.T) {
	b := newBackupBed(t)
	b.addClaim(t, "shared", nil)
	pod, other := b.addPod(t, "p", chooses("shared"), mounts("shared")), b.addPod(t, "q", chooses("shared"), mounts("shared"))
	id, _ := b.start(t, b.newBackupper(), pod)
	require.NoError(t, b.Client.Delete(t.Context(), pod.DeepCopy()))
	next := b.newBackupper()
	again, notes := b.start(t, next, pod)
	require.Equal(t, id, again)
	require.Empty(t, notes)
	again, _ = b.start(t, next, other)
	require.Empty(t, again)
	require.Equal(t, []string{"p/shared"}, b.requested(t))
}

// A Pod that was replaced since it was listed has other volumes.
func TestAPodThatIsGone(t *testing.T) {
	b := newBackupBed(t)
	pod := b.addPod(t, "p", chooses("v"), scratch("v"))
	pod.UID = "before"
	_, notes := b.start(t, b.newBackupper(), pod)
	require.Equal(t, []string{"error: volume v: no file-system backup: the pod is gone"}, notes)
}

// A dry run says what would become of each chosen volume, and requests nothing.
func TestADryRunRequestsNothing(t *testing.T) {
	b := newBackupBed(t)
	pod := b.addPod(t, "p", chooses("v,w"), scratch("v"))
	pod.APIVersion, pod.Kind = "v1", "Pod"
	raw, err := json.Marshal(pod)
	require.NoError(t, err)
	a := b.newBackupper().Action()
	_, safe := a.(action.DryRunSafe)
	require.True(t, safe)
	r, err := a.Execute(t.Context(), action.FromJSON(raw), nil)
	require.NoError(t, err)
	require.Len(t, r.Notes, 2)
	require.Equal(t, "volume w: no file-system backup: the pod has no volume of that name", r.Notes[0].Message)
	require.Equal(t, "volume v would be taken by file-system backup", r.Notes[1].Message)
	require.Empty(t, b.requested(t))
}

// Most Pods are of no concern unless the backup takes volumes by default.
func TestPodsOfNoConcern(t *testing.T) {
	b := newBackupBed(t)
	concerns := func() bool {
		return b.newBackupper().Action().(interface{ Concerns(raw []byte) bool }).Concerns([]byte(`{"kind":"Pod"}`))
	}
	require.False(t, concerns())
	b.backup.Spec.DefaultVolumesToFsBackup = ptr.To(true)
	require.True(t, concerns())
}

// await waits for the data of Pod a/p, and returns how the wait ends.
func (b *backupBed) await(t *testing.T, stop <-chan struct{}) <-chan string {
	t.Helper()
	end, ctx := make(chan string, 1), t.Context()
	go func() {
		done, err := b.newBackupper().Await(ctx, stop, []client.ObjectKey{{Namespace: "a", Name: "p"}})
		end <- fmt.Sprint(done, " ", err)
	}()
	return end
}

// tick lets the wait look again.
func (b *backupBed) tick(t *testing.T, d time.Duration) {
	t.Helper()
	b.awaitPause(t)
	b.clock.Step(d)
}

// awaitPause waits until the wait has looked and pauses.
func (b *backupBed) awaitPause(t *testing.T) {
	t.Helper()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
}

// The wait for a Pod ends with the last of its requests, and those of other Pods do not matter.
func TestTheWaitEndsWithTheLastRequestOfThePod(t *testing.T) {
	b := newBackupBed(t)
	b.clock.SetTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) // when the API server creates objects
	by := b.newBackupper()
	b.start(t, by, b.addPod(t, "p", chooses("v,w"), scratch("v"), scratch("w")))
	b.start(t, by, b.addPod(t, "q", chooses("v"), scratch("v")))
	end := b.await(t, nil)
	for i, volume := range []string{"v", "w"} {
		b.tick(t, time.Minute)
		b.awaitPause(t)
		require.Empty(t, end, "%d of 2 are done", i)
		b.setPhase(t, volume, []velerov1.PodVolumePhase{velerov1.PodVolumePhaseCompleted, velerov1.PodVolumePhaseFailed}[i])
	}
	b.tick(t, time.Minute)
	require.Equal(t, "true <nil>", <-end)
}

func (b *backupBed) setPhase(t *testing.T, volume string, phase velerov1.PodVolumePhase) {
	t.Helper()
	list, err := b.ListBackups(t.Context(), podvolume.BackupLabels("uid-b"))
	require.NoError(t, err)
	for i := range list {
		if list[i].Spec.Pod.Name == "p" && list[i].Spec.Volume == volume {
			list[i].Status.Phase = phase
			require.NoError(t, b.Client.Update(t.Context(), &list[i]))
		}
	}
}

// Data that takes too long is given up, with a reason: what hooks froze does not stay so.
func TestTheWaitHasAnEnd(t *testing.T) {
	b := newBackupBed(t)
	b.clock.SetTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	b.start(t, b.newBackupper(), b.addPod(t, "p", chooses("v,w"), scratch("v"), scratch("w")))
	b.setPhase(t, "v", velerov1.PodVolumePhaseInProgress)
	b.setPhase(t, "w", velerov1.PodVolumePhaseCompleted)
	end := b.await(t, nil)
	b.tick(t, podvolume.DefaultTimeout-2*time.Second)
	b.tick(t, 2*time.Second)
	require.Equal(t, "true <nil>", <-end)
	list, err := b.ListBackups(t.Context(), podvolume.BackupLabels("uid-b"))
	require.NoError(t, err)
	for i := range list {
		r := podvolume.BackupRequest(&list[i])
		require.Equal(t, r.Volume == "v", list[i].Spec.Cancel)
		if list[i].Status.Phase = velerov1.PodVolumePhaseCanceled; r.Volume == "v" {
			r = podvolume.BackupRequest(&list[i])
			require.Equal(t, "canceled: the data was not taken within 4h0m0s (--fs-backup-timeout)", r.Failure(b.clock.Now()))
		}
	}
}

// A process that stops leaves the wait to its successor.
func TestTheWaitEndsWithTheProcess(t *testing.T) {
	b := newBackupBed(t)
	b.clock.SetTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	b.start(t, b.newBackupper(), b.addPod(t, "p", chooses("v"), scratch("v")))
	stop := make(chan struct{})
	end := b.await(t, stop)
	close(stop)
	require.Equal(t, "false <nil>", <-end)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("lost"))
	_, err := b.newBackupper().Await(ctx, nil, []client.ObjectKey{{Namespace: "a", Name: "p"}})
	require.ErrorContains(t, err, "lost")
}

// Blocks that wait look at one list, which was begun after each of them had made its requests.
func TestBlocksThatWaitShareAList(t *testing.T) {
	b := newBackupBed(t)
	b.clock.SetTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	by := b.newBackupper()
	reader := &countedReader{Reader: by.Reader}
	by.Reader = reader
	first, second := b.addPod(t, "p", chooses("v"), scratch("v")), b.addPod(t, "q", chooses("v"), scratch("v"))
	b.start(t, by, first)
	wait := func(stop chan struct{}, pods ...string) {
		t.Helper()
		var keys []client.ObjectKey
		for _, pod := range pods {
			keys = append(keys, client.ObjectKey{Namespace: "a", Name: pod})
		}
		close(stop)
		done, err := by.Await(t.Context(), stop, keys)
		require.NoError(t, err)
		require.False(t, done)
	}
	wait(make(chan struct{}), "p")
	b.start(t, by, second)
	wait(make(chan struct{}), "q") // which requested after that list

	ended, stop := make(chan struct{}, 8), make(chan struct{})
	for range cap(ended) {
		go func() {
			_, _ = by.Await(t.Context(), stop, []client.ObjectKey{{Namespace: "a", Name: "q"}})
			ended <- struct{}{}
		}()
	}
	allWait := func() bool { return b.clock.Waiters() == cap(ended) }
	require.Eventually(t, allWait, time.Minute, time.Millisecond)
	before := reader.lists
	b.clock.Step(2 * time.Second)
	require.Eventually(t, allWait, time.Minute, time.Millisecond)
	require.Equal(t, before+1, reader.lists)
	close(stop)
	for range cap(ended) {
		<-ended
	}
}

// A backup that fails cancels its requests that are not final.
func TestTheRequestsOfAFailedBackupAreCancelled(t *testing.T) {
	b := newBackupBed(t)
	b.start(t, b.newBackupper(), b.addPod(t, "p", chooses("v,w"), scratch("v"), scratch("w")))
	b.setPhase(t, "v", velerov1.PodVolumePhaseCompleted)
	require.NoError(t, b.CancelBackups(t.Context(), b.backup, "the backup failed"))
	list, err := b.ListBackups(t.Context(), podvolume.BackupLabels("uid-b"))
	require.NoError(t, err)
	for i := range list {
		require.Equal(t, strings.HasSuffix(list[i].Spec.Volume, "w"), list[i].Spec.Cancel)
	}
}

// A DataUpload has a server if a node-agent of Velero's runs with --volume-mover=velero, or none runs with
// --volume-mover=holdfast.
func TestWhoServesTheRequestsForSnapshots(t *testing.T) {
	for want, tc := range map[string]struct {
		agent bool
		mover podvolume.Mover
	}{
		"":                             {false, podvolume.MoverHoldfast},
		"Velero's node-agent runs in":  {true, podvolume.MoverHoldfast},
		"no node-agent of Velero runs": {false, podvolume.MoverVelero},
	} {
		b := newBackupBed(t)
		if tc.agent {
			b.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "agent", Labels: map[string]string{"role": "node-agent"}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
		}
		backupper := b.newBackupper()
		backupper.Mover = tc.mover
		problem, err := backupper.FindProblem(t.Context())
		require.NoError(t, err)
		require.Contains(t, problem, want)
		require.Equal(t, want == "", problem == "")
	}
}
