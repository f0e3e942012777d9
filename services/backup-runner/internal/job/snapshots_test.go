package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

const arrayBinary = "array"

func init() {
	if filepath.Base(os.Args[0]) != arrayBinary {
		return
	}
	registry := &plugin.Registry{}
	registry.VolumeSnapshotter("array.io/disks", func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &array{}, nil })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// array is a plugin whose volumes and snapshots are the files of a directory.
type array struct{ dir string }

func (a *array) Init(_ context.Context, config map[string]string) error {
	a.dir = config["dir"]
	return nil
}

func (a *array) GetVolumeID(_ context.Context, pv *unstructured.Unstructured) (string, error) {
	id, _, err := unstructured.NestedString(pv.Object, "spec", "hostPath", "path")
	return id, err
}

func (a *array) GetVolumeInfo(_ context.Context, id, _ string) (string, int64, error) {
	_, err := os.Stat(filepath.Join(a.dir, id))
	return "file", 0, err
}

func (a *array) CreateSnapshot(_ context.Context, id, _ string, tags map[string]string) (string, error) {
	text, err := json.Marshal(tags)
	if err != nil {
		return "", err
	}
	snap := "snap-" + id
	return snap, os.WriteFile(filepath.Join(a.dir, snap), text, 0o600)
}

var errUnused = errors.New("not asked in a backup")

func (a *array) DeleteSnapshot(context.Context, string) error { return errUnused }

func (a *array) CreateVolumeFromSnapshot(context.Context, string, string, string, int64) (string, error) {
	return "", errUnused
}

func (a *array) SetVolumeID(context.Context, *unstructured.Unstructured, string) (*unstructured.Unstructured, error) {
	return nil, errUnused
}

// addSnapshotLocation adds a location behind a plugin process, volumes and claims; it returns the
// directory of the plugin.
func (w *world) addSnapshotLocation(t *testing.T) string {
	t.Helper()
	disks, plugins := t.TempDir(), selfplugin.Directory(t, arrayBinary)
	host, err := pluginhost.New(t.Context(), pluginhost.Config{Dir: plugins, Namespace: namespace, Environ: os.Environ(),
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	require.NoError(t, w.client.Create(t.Context(), &velerov1.VolumeSnapshotLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "disks"},
		Spec:       velerov1.VolumeSnapshotLocationSpec{Provider: "array.io/disks", Config: map[string]string{"dir": disks}}}))
	w.Snapshots = func(ctx context.Context, b *velerov1.Backup, note func(joblog.Entry)) *volumes.Taker {
		session := host.Open(ctx, pluginhost.JobLog(0, note))
		return &volumes.Taker{Backup: b, Close: session.Close,
			Locations: &nativesnapshot.Opener{Reader: w.client, Namespace: namespace, Session: session, WorkDir: t.TempDir()}}
	}
	for _, name := range []string{"here", "lost", "foreign"} {
		spec := map[string]any{"persistentVolumeReclaimPolicy": "Retain", "claimRef": map[string]any{"namespace": "a", "name": name}}
		if name != "foreign" {
			spec["hostPath"] = map[string]any{"path": "disk-" + name}
		}
		w.api.Add("persistentvolumes", kubetest.Object{Name: "pv-" + name, Body: map[string]any{"spec": spec}})
		w.api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: name, Body: map[string]any{"spec": map[string]string{"volumeName": "pv-" + name}}})
	}
	require.NoError(t, os.WriteFile(filepath.Join(disks, "disk-here"), nil, 0o600))
	return disks
}

func inDisks(b *velerov1.Backup) { b.Spec.VolumeSnapshotLocations = []string{"disks"} }

// TestSnapshotsOfAPluginAreTaken goes through a real process.
func TestSnapshotsOfAPluginAreTaken(t *testing.T) {
	w := newWorld(t)
	disks := w.addSnapshotLocation(t)
	b := w.admitBackup(t, "b", inDisks)
	require.NoError(t, w.Run(t.Context(), b.Name, b.UID))
	got := w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
	require.Equal(t, 2, got.Status.VolumeSnapshotsAttempted)
	require.Equal(t, 1, got.Status.VolumeSnapshotsCompleted)
	require.Equal(t, 1, got.Status.Errors)
	require.Equal(t, 1, got.Status.Warnings)

	list, err := nativesnapshot.Read(t.Context(), w.store, "b")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, nativesnapshot.Snapshot{
		Spec: nativesnapshot.Spec{BackupName: "b", BackupUID: string(b.UID), Location: "disks", PersistentVolumeName: "pv-here",
			ProviderVolumeID: "disk-here", VolumeType: "file"},
		Status: nativesnapshot.Status{ProviderSnapshotID: "snap-disk-here", Phase: "Completed"}}, list[0])
	require.Equal(t, nativesnapshot.Status{Phase: "Failed"}, list[1].Status)
	tags, err := os.ReadFile(filepath.Join(disks, "snap-disk-here"))
	require.NoError(t, err)
	require.JSONEq(t, `{"velero.io/backup":"b","velero.io/pv":"pv-here"}`, string(tags))

	var infos []map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.readDocument(t, layout.BackupVolumeInfo("b"))), &infos))
	require.Len(t, infos, 3)
	require.Equal(t, "foreign", infos[0]["pvcName"])
	require.Contains(t, infos[0]["skippedReason"], "no way")
	require.NotContains(t, infos[1], "pending")
	require.Equal(t, map[string]any{"snapshotHandle": "snap-disk-here", "volumeType": "file", "volumeAZ": "", "iops": "0", "Phase": "Completed"}, infos[1]["nativeSnapshotInfo"])
	require.Equal(t, "NativeSnapshot", infos[1]["backupMethod"])
	require.Equal(t, "failed", infos[2]["result"])
}

// A backup without volume data calls no plugin.
func TestNoSnapshotsByChoice(t *testing.T) {
	w := newWorld(t)
	disks := w.addSnapshotLocation(t)
	no := false
	b := w.admitBackup(t, "b", inDisks, func(b *velerov1.Backup) { b.Spec.SnapshotVolumes = &no })
	require.NoError(t, w.Run(t.Context(), b.Name, b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	require.Equal(t, "null\n", w.readDocument(t, layout.BackupVolumeSnapshots("b")))
	require.NoFileExists(t, filepath.Join(disks, "snap-disk-here"))
}

// The list of what a backup took before it failed is there for its deletion.
func TestAFailedBackupListsItsSnapshots(t *testing.T) {
	w := newWorld(t)
	w.addSnapshotLocation(t)
	b := w.admitBackup(t, "b", inDisks)
	w.beforeObject("/composition", func() { w.requestCancel(t, b, true) })
	require.NoError(t, w.Run(t.Context(), b.Name, b.UID))
	w.requireCancelled(t, b, true)
	list, err := nativesnapshot.Read(t.Context(), w.store, "b")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "snap-disk-here", list[0].Status.ProviderSnapshotID)
	got := w.readBackup(t, b)
	require.Equal(t, []int{2, 1}, []int{got.Status.VolumeSnapshotsAttempted, got.Status.VolumeSnapshotsCompleted})
}

// startingLocations run something when a location is opened.
type startingLocations struct {
	volumes.SnapshotLocations
	start func()
}

func (l startingLocations) Open(ctx context.Context, location string) (action.VolumeSnapshotter, error) {
	l.start()
	return l.SnapshotLocations.Open(ctx, location)
}

// A runner that stops gives a snapshotter's process the grace period of any other work, and leaves
// the volume to the next one. That one decides on it although the spec selects no snapshots by then:
// each claim is reported (P10).
func TestAStopWhileASnapshotterStartsIsAHandOver(t *testing.T) {
	for name, changed := range map[string]bool{"the same spec": false, "a spec without snapshots": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			disks := w.addSnapshotLocation(t)
			b := w.admitBackup(t, "b", inDisks)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			open := w.Snapshots
			var interruption error
			w.Snapshots = func(session context.Context, b *velerov1.Backup, note func(joblog.Entry)) *volumes.Taker {
				taker := open(session, b, note)
				taker.Locations = startingLocations{taker.Locations, func() {
					cancel()
					<-session.Done()
					interruption = context.Cause(session)
				}}
				return taker
			}
			require.Error(t, w.Run(ctx, b.Name, b.UID))
			require.ErrorIs(t, interruption, engine.ErrStopped, "at the end of the grace period")
			w.requireHandedOver(t, b)
			if changed {
				now, no := w.readBackup(t, b), false
				now.Spec.SnapshotVolumes = &no
				require.NoError(t, w.client.Update(t.Context(), now))
			}

			w.Snapshots = open
			require.NoError(t, w.Run(t.Context(), b.Name, b.UID))
			got := w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
			require.Equal(t, []int{2, 1, 1}, []int{got.Status.VolumeSnapshotsAttempted, got.Status.VolumeSnapshotsCompleted, got.Status.Errors})
			require.FileExists(t, filepath.Join(disks, "snap-disk-here"))
			var infos []map[string]any
			require.NoError(t, json.Unmarshal([]byte(w.readDocument(t, layout.BackupVolumeInfo("b"))), &infos))
			require.Len(t, infos, 3)
		})
	}
}
