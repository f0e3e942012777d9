package collect

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// created is when the API server creates objects.
var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// podVolumeBed is a setup with file-system backups.
type podVolumeBed struct {
	*setup
	podvolume.API
}

// newPodVolumeBed is a backup of Pods a/…, each of which is given with its claims; the volume of claim
// c is pv-c.
func newPodVolumeBed(t *testing.T, spec velerov1.BackupSpec, pods ...kubetest.Object) *podVolumeBed {
	t.Helper()
	api := kubetest.New(append(slices.Clone(kinds), kubetest.Kind{Group: "velero.io", Version: "v1", Kind: "PodVolumeBackup", Resource: "podvolumebackups", Namespaced: true, Custom: true})...)
	for _, ns := range []string{"a", "velero"} {
		api.Add("namespaces", kubetest.Object{Name: ns})
	}
	seen := map[string]bool{}
	for _, pod := range pods {
		api.Add("pods", pod)
		for _, v := range pod.Body["spec"].(map[string]any)["volumes"].([]any) {
			name := v.(map[string]any)["name"].(string)
			if seen[name] {
				continue
			}
			seen[name] = true
			claim := volumeClaim("a", name, "pv-"+name)
			claim.Body["status"] = map[string]any{"phase": "Bound"}
			api.Add("persistentvolumeclaims", claim)
			api.Add("persistentvolumes", kubetest.Object{Name: "pv-" + name, Body: map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": "Delete"}}})
		}
	}
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	c, err := client.New(&rest.Config{Host: srv.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b := &podVolumeBed{setup: newSetup(t, api, spec, "a"), API: podvolume.API{Reader: c, Client: c, Namespace: "velero", Clock: clocktesting.NewFakeClock(created), Log: slog.New(slog.DiscardHandler)}}
	b.openBackupper()
	return b
}

// openBackupper gives the setup the actions of a new holder.
func (b *podVolumeBed) openBackupper() {
	backupper := &podvolume.Backupper{API: b.API, Backup: b.job.Backup, Claims: true, Timeout: podvolume.DefaultTimeout}
	b.addActions(backupper.Action())
	b.job.Actions.PodVolumes = backupper
}

// mountingPod is a running Pod that mounts the volumes of claims of these names.
func mountingPod(name, node string, annotations map[string]string, claims ...string) kubetest.Object {
	pod := newPod(name, annotations, claims...)
	mounts := []any{}
	for _, claim := range claims {
		mounts = append(mounts, map[string]any{"name": claim, "mountPath": "/" + claim})
	}
	spec := pod.Body["spec"].(map[string]any)
	spec["nodeName"] = node
	spec["containers"] = []any{map[string]any{"name": "main", "volumeMounts": mounts}}
	return pod
}

func (b *podVolumeBed) requests(t *testing.T) []velerov1.PodVolumeBackup {
	t.Helper()
	list, err := b.ListBackups(t.Context(), podvolume.BackupLabels("uid-1"))
	require.NoError(t, err)
	return list
}

// The data of a claim that a Pod chooses is requested once, and no snapshot is taken of its volume;
// claims that no Pod chooses keep their snapshots. Two Pods share a claim, of which one chooses it.
func TestAClaimIsTakenWithItsPodOrByASnapshot(t *testing.T) {
	chooses := map[string]string{"backup.velero.io/backup-volumes": "own,shared"}
	b := newPodVolumeBed(t, velerov1.BackupSpec{}, mountingPod("first", "n1", nil, "shared", "free"), mountingPod("second", "n1", chooses, "own", "shared"),
		mountingPod("third", "n1", map[string]string{"backup.velero.io/backup-volumes": "shared"}, "shared"))
	c := &cloud{knows: func(string) bool { return true }}
	b.withSnapshots(c, "main")
	res, got := b.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	var volumes []string
	for _, r := range b.requests(t) {
		volumes = append(volumes, r.Spec.Pod.Name+"/"+r.Spec.Volume)
	}
	slices.Sort(volumes)
	require.Equal(t, []string{"second/own", "second/shared"}, volumes)
	require.Equal(t, map[string]int{"disk-pv-free": 1}, c.taken)
	require.Len(t, res.Operations, 1)
	require.Equal(t, podvolume.NameBackup+" second", res.Operations[0].Action+" "+res.Operations[0].Item.Name)
	infos, _ := decidedVolumes(t, got)
	for pv, method := range map[string]string{"pv-own": checkpoint.MethodPodVolume, "pv-shared": checkpoint.MethodPodVolume, "pv-free": checkpoint.MethodNative} {
		require.Equal(t, method, infos[pv].Method, pv)
	}
	require.Equal(t, 3, got.countOf("pods"))
}

// Without a way to take snapshots a claim is accounted for once all Pods have had their turn.
func TestAClaimWithoutSnapshotIsTakenWithItsPod(t *testing.T) {
	b := newPodVolumeBed(t, velerov1.BackupSpec{DefaultVolumesToFsBackup: ptr.To(true)}, mountingPod("p", "n1", map[string]string{"backup.velero.io/backup-volumes-excludes": "free"}, "own", "free"))
	b.withSnapshots(&cloud{})
	b.job.Backup.Spec.VolumeSnapshotLocations = nil
	res, got := b.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, []string{"persistentvolumeclaims a/free: volume data was not backed up: " + checkpoint.ReasonNoSnapshotter}, got.notesAt(joblog.Warning))
	require.Len(t, b.requests(t), 1)
}

// Killed at any write, the backup makes no second request for a volume, names the operation once, and
// reports each volume that is not taken once.
func TestATakeoverMakesNoSecondRequest(t *testing.T) {
	chooses := map[string]string{"backup.velero.io/backup-volumes": "data,typo"}
	for n := 1; n < 40; n++ {
		b := newPodVolumeBed(t, velerov1.BackupSpec{}, mountingPod("p", "n1", chooses, "data"))
		b.withSnapshots(&cloud{knows: func(string) bool { return false }}, "main")
		died := dieAt(b.store, n)
		_, err := Run(t.Context(), b.cfg, b.job)
		if err == nil {
			require.False(t, died())
			require.Greater(t, n, 4, "the loop reaches the writes around the call")
			return
		}
		b.store.Inject(nil)
		b.setup = b.nextOwner(t, 2)
		b.openBackupper()
		res, got := b.runJob(t)
		require.Len(t, b.requests(t), 1, "dead at write %d", n)
		require.Len(t, res.Operations, 1, "dead at write %d", n)
		require.Equal(t, []string{"pods a/p: volume typo: no file-system backup: the pod has no volume of that name"}, got.notesAt(joblog.Error), "dead at write %d", n)
		require.Equal(t, 1, res.Errors)
	}
	t.Fatal("the run never ends")
}

// finish sets the phase of all requests.
func (b *podVolumeBed) finish(t *testing.T, phase velerov1.PodVolumePhase) {
	t.Helper()
	list := b.requests(t)
	for i := range list {
		list[i].Status.Phase, list[i].Status.SnapshotID = phase, "k"
		require.NoError(t, b.Client.Update(t.Context(), &list[i]))
	}
}

// The post hooks of a Pod wait for its data, and other Pods wait for nothing.
func TestPostHooksWaitForTheData(t *testing.T) {
	b := newPodVolumeBed(t, velerov1.BackupSpec{}, mountingPod("db", "n1", hookAnnotations("backup.velero.io/backup-volumes", "data"), "data"), mountingPod("plain", "n1", nil))
	apps := &applications{}
	b.withHooks(t, apps)
	waits := make(chan struct{})
	b.job.Actions.PodVolumes = &noticedWait{PodVolumes: b.job.Actions.PodVolumes, began: func() {
		require.True(t, apps.isFrozen("db"))
		require.Len(t, b.requests(t), 1)
		b.finish(t, velerov1.PodVolumePhaseCompleted)
		close(waits)
	}}
	res, got := b.runJob(t)
	<-waits
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.False(t, apps.isFrozen("db"))
	pods, attempted, failed := got.endedHooks()
	require.Equal(t, []int{1, 2, 0}, []int{pods, attempted, failed})
}

// noticedWait calls began when somebody waits for the data of Pods.
type noticedWait struct {
	PodVolumes interface {
		Takes(ctx context.Context, namespace, claim string, final bool) (bool, error)
		Await(ctx context.Context, stop <-chan struct{}, pods []client.ObjectKey) (bool, error)
	}
	began func()
}

func (w *noticedWait) Takes(ctx context.Context, namespace, claim string, final bool) (bool, error) {
	return w.PodVolumes.Takes(ctx, namespace, claim, final)
}

func (w *noticedWait) Await(ctx context.Context, stop <-chan struct{}, pods []client.ObjectKey) (bool, error) {
	w.began()
	return w.PodVolumes.Await(ctx, stop, pods)
}

// A runner that is told to stop while it waits leaves the post hooks to the next one, which waits on.
func TestAStoppedWaitLeavesThePostHooks(t *testing.T) {
	b := newPodVolumeBed(t, velerov1.BackupSpec{}, mountingPod("db", "n1", hookAnnotations("backup.velero.io/backup-volumes", "data"), "data"))
	apps, stop := &applications{}, make(chan struct{})
	b.withHooks(t, apps)
	b.job.Stop = stop
	b.job.Actions.PodVolumes = &noticedWait{PodVolumes: b.job.Actions.PodVolumes, began: func() { close(stop) }}
	_, err := Run(t.Context(), b.cfg, b.job)
	require.ErrorIs(t, err, ErrStopped)
	require.True(t, apps.isFrozen("db"), "its data is not taken: %v", apps.ran)

	b.setup = b.nextOwner(t, 2)
	b.job.Stop = nil
	b.openBackupper()
	waited := false
	b.job.Actions.PodVolumes = &noticedWait{PodVolumes: b.job.Actions.PodVolumes, began: func() {
		waited = true
		require.True(t, apps.isFrozen("db"))
		b.finish(t, velerov1.PodVolumePhaseFailed)
	}}
	res, got := b.runJob(t)
	require.True(t, waited)
	require.False(t, apps.isFrozen("db"))
	require.Zero(t, res.Errors, strings.Join(got.notesAt(joblog.Error), "\n")+": the operation reports the volume")
	require.Len(t, b.requests(t), 1)
}
