package restore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	csiDriver = "disk.example.com"
	groupPath = "/apis/snapshot.storage.k8s.io/v1"
	classPath = "/apis/storage.k8s.io/v1/storageclasses/fast"
)

// newDiskServer is a cluster with a CSI driver that has snapshot "physical", and a class of volumes.
func newDiskServer(t *testing.T) (*kubetest.Server, *csitest.Driver) {
	t.Helper()
	s := kubetest.Start(t)
	serveSnapshots(s)
	s.Put(groupPath+"/volumesnapshotclasses/disks", object{"metadata": object{"name": "disks"}, "driver": csiDriver, "deletionPolicy": "Delete"})
	s.Put(classPath, object{"metadata": object{"name": "fast"}, "provisioner": csiDriver})
	config := s.Config()
	config.QPS, config.ContentType = -1, "application/json"
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	d := &csitest.Driver{Client: c, Name: csiDriver, Provision: true, Bind: true}
	d.Keep("physical", "as at the cut")
	return s, d
}

func serveSnapshots(s *kubetest.Server) {
	s.Serve("snapshot.storage.k8s.io/v1", "volumesnapshots", "VolumeSnapshot", true)
	s.Serve("snapshot.storage.k8s.io/v1", "volumesnapshotcontents", "VolumeSnapshotContent", false)
	s.Serve("snapshot.storage.k8s.io/v1", "volumesnapshotclasses", "VolumeSnapshotClass", false)
	s.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	s.Serve("storage.k8s.io/v1", "csidrivers", "CSIDriver", false)
}

// driveUntilEnd has the driver work until the test ends.
func driveUntilEnd(t *testing.T, d *csitest.Driver) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var runs sync.WaitGroup
	runs.Go(func() { d.Run(ctx, 10*time.Millisecond, func(err error) { t.Error(err) }) })
	t.Cleanup(func() { stop(); runs.Wait() })
}

// cutClaim is a backup of a claim with a CSI snapshot, as Velero 1.18 stores it.
func cutClaim(t *testing.T) *backup {
	t.Helper()
	b := &backup{csi: true}
	labels := object{"velero.io/backup-name": "b"}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"persistentVolumeReclaimPolicy": "Retain",
		"csi": object{"driver": csiDriver, "volumeHandle": "old"}, "claimRef": object{"namespace": "a", "name": "data", "uid": "old-data"}}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{
		"metadata": object{"labels": object{"app": "db", "velero.io/backup-name": "b", "velero.io/volume-snapshot-name": "velero-data-x7k2p"},
			"annotations": object{"velero.io/volume-snapshot-name": "velero-data-x7k2p", "pv.kubernetes.io/bind-completed": "yes"}},
		"spec":   object{"volumeName": "pv", "storageClassName": "fast", "accessModes": []any{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}}},
		"status": object{"phase": "Bound"}})
	b.addObject("volumesnapshots.snapshot.storage.k8s.io", "snapshot.storage.k8s.io/v1", "VolumeSnapshot", "a", "velero-data-x7k2p", object{
		"metadata": object{"labels": labels, "finalizers": []any{"snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"},
			"annotations": object{"velero.io/csi-volumesnapshot-handle": "physical", "velero.io/csi-vsc-deletion-policy": "Delete"}},
		"spec":   object{"source": object{"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": "gone"},
		"status": object{"boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true}})
	b.addObject("volumesnapshotcontents.snapshot.storage.k8s.io", "snapshot.storage.k8s.io/v1", "VolumeSnapshotContent", "", "snapcontent-1", object{
		"metadata": object{"labels": labels, "annotations": object{"snapshot.storage.kubernetes.io/deletion-secret-name": "s"}},
		"spec": object{"deletionPolicy": "Delete", "driver": csiDriver, "sourceVolumeMode": "Filesystem", "volumeSnapshotClassName": "gone",
			"source": object{"volumeHandle": "old"}, "volumeSnapshotRef": object{"name": "velero-data-x7k2p", "namespace": "a", "uid": "old-x"}},
		"status": object{"snapshotHandle": "physical", "restoreSize": csitest.Size, "readyToUse": true}})
	require.NoError(t, json.Unmarshal([]byte(`[{"pvcName":"data","pvcNamespace":"a","pvName":"pv","backupMethod":"CSISnapshot",
		"pvInfo":{"reclaimPolicy":"Retain","labels":{"tier":"gold"}}}]`), &b.infos))
	return b
}

func toB() velerov1.RestoreSpec {
	return velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b"}}
}

// runFilled is run with as much time for claims as a busy machine needs.
func runFilled(t *testing.T, s *kubetest.Server, b *backup, spec velerov1.RestoreSpec, change ...func(*restore.Config)) *finishedRestore {
	t.Helper()
	patient := func(c *restore.Config) { c.ResourceTimeout = time.Minute }
	return runRestore(t, s, b, spec, append([]func(*restore.Config){patient}, change...)...)
}

// shortenClaimWait has a restore wait for claims no longer than a test likes to.
func shortenClaimWait(c *restore.Config) { c.ResourceTimeout = 300 * time.Millisecond }

var pairName = restored.Name(restoreUID, "velero-data-x7k2p")

func claimSpec(s *kubetest.Server, namespace string) object {
	spec, _ := s.Object("/api/v1/namespaces/" + namespace + "/persistentvolumeclaims/data")["spec"].(object)
	return spec
}

func TestAClaimIsFilledFromItsCSISnapshot(t *testing.T) {
	s, d := newDiskServer(t)
	driveUntilEnd(t, d)
	f := runFilled(t, s, cutClaim(t), toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())

	vsc := s.Object(groupPath + "/volumesnapshotcontents/" + pairName)
	require.Equal(t, "Retain", vsc["spec"].(object)["deletionPolicy"], "a restore never removes the snapshot of the backup")
	require.Equal(t, object{"snapshotHandle": "physical"}, vsc["spec"].(object)["source"])
	require.Equal(t, "disks", vsc["spec"].(object)["volumeSnapshotClassName"])
	require.Equal(t, "Filesystem", vsc["spec"].(object)["sourceVolumeMode"])
	require.Equal(t, "s", kubetest.Meta(vsc)["annotations"].(object)["snapshot.storage.kubernetes.io/deletion-secret-name"])
	ref := vsc["spec"].(object)["volumeSnapshotRef"].(object)
	require.Equal(t, []any{"b", pairName}, []any{ref["namespace"], ref["name"]})
	vs := s.Object(groupPath + "/namespaces/b/volumesnapshots/" + pairName)
	require.Equal(t, object{"source": object{"volumeSnapshotContentName": pairName}}, vs["spec"])
	require.Equal(t, object{"velero.io/backup-name": "b", "velero.io/restore-name": "r", "velero.io/restore-uid": string(restoreUID)}, kubetest.Meta(vs)["labels"])
	require.Equal(t, "Retain", kubetest.Meta(vs)["annotations"].(object)["velero.io/csi-vsc-deletion-policy"])
	require.Len(t, s.Requests("POST "+groupPath), 2, "what the backup has of them is not restored itself")

	claim := claimSpec(s, "b")
	require.Equal(t, object{"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": pairName}, claim["dataSource"])
	require.Equal(t, object{"requests": object{"storage": "5Gi"}}, claim["resources"], "a volume of the snapshot is no smaller")
	require.Nil(t, s.Object(pvPath), "its claim gets a new volume")
	volumeName := claim["volumeName"].(string)
	require.Equal(t, "as at the cut", d.File(volumeName))
	pv := s.Object("/api/v1/persistentvolumes/" + volumeName)
	require.Equal(t, "Retain", pv["spec"].(object)["persistentVolumeReclaimPolicy"], "that of the volume in the backup")
	require.Equal(t, object{"tier": "gold"}, kubetest.Meta(pv)["labels"])
	require.Equal(t, object{"app": "db", "velero.io/backup-name": "b", "velero.io/restore-name": "r", "velero.io/volume-snapshot-name": "velero-data-x7k2p"},
		kubetest.Meta(s.Object("/api/v1/namespaces/b/persistentvolumeclaims/data"))["labels"])

	var infos bytes.Buffer
	require.NoError(t, f.recorder.Files().WriteVolumeInfo(&infos, nil))
	require.JSONEq(t, `[{"pvcName":"data","pvcNamespace":"b","pvName":"`+volumeName+`","restoreMethod":"CSISnapshot","snapshotDataMoved":false,
		"csiSnapshotInfo":{"snapshotHandle":"physical","size":5368709120,"driver":"disk.example.com","vscName":"`+pairName+`"}}]`, infos.String())
}

// An application on an empty volume would seem to be restored: its claim is not created.
func TestAClaimWhoseSnapshotCannotBeRestoredIsAnErrorAndNotCreated(t *testing.T) {
	change := func(path string, change func(o object)) func(*testing.T, *kubetest.Server, *backup) {
		return func(t *testing.T, _ *kubetest.Server, b *backup) {
			var o object
			require.NoError(t, json.Unmarshal(b.bodies[path], &o))
			change(o)
			raw, err := json.Marshal(o)
			require.NoError(t, err)
			b.bodies[path] = raw
		}
	}
	const content = "resources/volumesnapshotcontents.snapshot.storage.k8s.io/cluster/snapcontent-1.json"
	const snapshot = "resources/volumesnapshots.snapshot.storage.k8s.io/namespaces/a/velero-data-x7k2p.json"
	const claim = "resources/persistentvolumeclaims/namespaces/a/data.json"
	for want, prepare := range map[string]func(*testing.T, *kubetest.Server, *backup){
		"has no snapshotHandle":            change(content, func(o object) { delete(o["status"].(object), "snapshotHandle") }),
		"bound to no content":              change(snapshot, func(o object) { delete(o, "status") }),
		"its content is not in the backup": change(snapshot, func(o object) { o["status"].(object)["boundVolumeSnapshotContentName"] = "other" }),
		"annotation velero.io/volume-snapshot-name of the claim in the backup: missing": change(claim, func(o object) { delete(kubetest.Meta(o), "annotations") }),
		`spec.storageClassName is ""`: change(claim, func(o object) { o["spec"].(object)["storageClassName"] = "" }),
		"create VolumeSnapshotContent " + pairName[:8]: func(_ *testing.T, s *kubetest.Server, _ *backup) {
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPost && r.URL.Path == groupPath+"/volumesnapshotcontents" {
					return http.StatusForbidden, false
				}
				return 0, false
			})
		},
	} {
		t.Run(want, func(t *testing.T) {
			s, _ := newDiskServer(t)
			b := cutClaim(t)
			prepare(t, s, b)
			f := runFilled(t, s, b, toB(), shortenClaimWait)
			require.Contains(t, f.results.Errors.allMessages(), want)
			require.Contains(t, f.results.Errors.allMessages(), "persistentvolumeclaims b/data: ")
			require.Nil(t, claimSpec(s, "b"))
			require.Equal(t, 1, f.recorder.Counts().Errors)
		})
	}
	t.Run("the API is not served", func(t *testing.T) {
		s := kubetest.Start(t)
		f := runFilled(t, s, cutClaim(t), toB(), shortenClaimWait)
		require.Contains(t, f.results.Errors.allMessages(), "persistentvolumeclaims b/data: CSI snapshot a/velero-data-x7k2p of the claim: the cluster does not serve snapshot.storage.k8s.io/v1")
		require.Nil(t, claimSpec(s, "b"))
	})
}

// What does not get bound is an error once it is late; what cannot be bound yet is none.
func TestClaimsThatAreNotBound(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*kubetest.Server, *csitest.Driver)
		problem string
	}{
		"its snapshot is gone": {func(_ *kubetest.Server, d *csitest.Driver) { d.Forget("physical") },
			"is not bound to a volume of CSI snapshot physical after 5s: driver disk.example.com: snapshot physical does not exist"},
		"its class waits for a consumer": {func(s *kubetest.Server, _ *csitest.Driver) {
			s.Put(classPath, object{"metadata": object{"name": "fast"}, "provisioner": csiDriver, "volumeBindingMode": "WaitForFirstConsumer"})
		}, ""},
		"its class is not there": {func(s *kubetest.Server, _ *csitest.Driver) { s.Delete(classPath) }, `StorageClass "fast" is not in the cluster`},
		"its class is another one's": {func(s *kubetest.Server, _ *csitest.Driver) {
			s.Put(classPath, object{"metadata": object{"name": "fast"}, "provisioner": "other"})
		}, `provisioner "other" made no volume`},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newDiskServer(t)
			tt.prepare(s, d)
			driveUntilEnd(t, d)
			f := runFilled(t, s, cutClaim(t), toB(), func(c *restore.Config) {
				if tt.problem != "" {
					c.ResourceTimeout = 5 * time.Second
				}
			})
			require.Contains(t, f.results.Errors.allMessages(), tt.problem)
			require.Equal(t, tt.problem != "", f.recorder.Counts().Errors == 1, f.results.Errors.allMessages())
			require.NotNil(t, claimSpec(s, "b"))
			require.Empty(t, claimSpec(s, "b")["volumeName"])
		})
	}
}

// A claim that another client created anew, on another volume, does not belong to the restore.
func TestAClaimThatWasReplacedWhileItWaitedIsAnErrorAndItsVolumeIsLeftAlone(t *testing.T) {
	ref := func(kind, name string, more object) object {
		maps.Copy(more, object{"apiGroup": "snapshot.storage.k8s.io", "kind": kind, "name": name})
		return more
	}
	for name, tt := range map[string]struct {
		source, ref object
		same        bool
	}{
		"without a source":      {},
		"of another snapshot":   {source: ref("VolumeSnapshot", "other", object{})},
		"of another kind":       {source: ref("Other", pairName, object{})},
		"of another group":      {source: object{"kind": "VolumeSnapshot", "name": pairName}},
		"of another namespace":  {ref: ref("VolumeSnapshot", pairName, object{"namespace": "z"})},
		"of the same, by a ref": {ref: ref("VolumeSnapshot", pairName, object{}), same: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newDiskServer(t)
			const foreign, claim = "/api/v1/persistentvolumes/foreign", "/api/v1/namespaces/b/persistentvolumeclaims/data"
			s.Put(foreign, object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "foreign"},
				"spec": object{"persistentVolumeReclaimPolicy": "Delete"}})
			replace := sync.OnceFunc(func() {
				spec := object{"volumeName": "foreign"}
				if tt.source != nil {
					spec["dataSource"] = tt.source
				}
				if tt.ref != nil {
					spec["dataSourceRef"] = tt.ref
				}
				s.Delete(claim)
				s.Put(claim, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": "data", "namespace": "b"},
					"spec": spec, "status": object{"phase": "Bound"}})
			})
			patched := ""
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				switch {
				case r.Method == http.MethodGet && r.URL.Path == groupPath+"/volumesnapshotcontents/"+pairName:
					replace() // it waits
				case r.Method == http.MethodPatch && r.URL.Path == foreign:
					patched, _ = kubetest.Meta(body)["uid"].(string)
				}
				return 0, false
			})
			f := runFilled(t, s, cutClaim(t), toB())
			policy := s.Object(foreign)["spec"].(object)["persistentVolumeReclaimPolicy"]
			if tt.same {
				require.Empty(t, f.results.Errors.allMessages())
				require.Equal(t, "Retain", policy)
				require.Equal(t, s.UID(foreign), patched, "no other volume of that name is changed")
				return
			}
			require.Contains(t, f.results.Errors.allMessages(), "claim b/data was replaced: the one in the cluster is not filled from CSI snapshot physical")
			require.Equal(t, 1, f.recorder.Counts().Errors)
			require.Equal(t, "Delete", policy)
			require.Empty(t, s.Requests("PATCH "+foreign))
		})
	}
}

func TestADriverThatIsMissingIsAWarning(t *testing.T) {
	s, _ := newDiskServer(t)
	s.Delete(groupPath + "/volumesnapshotclasses/disks")
	f := runFilled(t, s, cutClaim(t), toB(), shortenClaimWait)
	require.Contains(t, f.results.Warnings.allMessages(), `neither a CSIDriver nor a VolumeSnapshotClass of driver "disk.example.com"`)
	require.Contains(t, f.results.Errors.allMessages(), "driver disk.example.com has not made the snapshot ready")
	s.Put("/apis/storage.k8s.io/v1/csidrivers/"+csiDriver, object{"metadata": object{"name": csiDriver}})
	again := runFilled(t, s, cutClaim(t), velerov1.RestoreSpec{}, shortenClaimWait)
	require.NotContains(t, again.results.Warnings.allMessages(), "CSIDriver")
}

func TestAClaimThatIsThereIsNotFilled(t *testing.T) {
	s, _ := newDiskServer(t)
	live := object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": "data", "namespace": "a"}, "spec": object{"volumeName": "live"}}
	s.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
	s.Put("/api/v1/namespaces/a/persistentvolumeclaims/data", live)
	f := runFilled(t, s, cutClaim(t), velerov1.RestoreSpec{}, shortenClaimWait)
	require.Contains(t, f.results.Warnings.allMessages(), `could not restore, PersistentVolumeClaim "data" exists already`)
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, s.Requests("POST "+groupPath))
	require.Equal(t, object{"volumeName": "live"}, claimSpec(s, "a"))
}

func TestASnapshotIsRestoredWhateverTheFiltersSay(t *testing.T) {
	s, d := newDiskServer(t)
	driveUntilEnd(t, d)
	f := runFilled(t, s, cutClaim(t), velerov1.RestoreSpec{IncludedResources: []string{"persistentvolumeclaims"}})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, "as at the cut", d.File(claimSpec(s, "a")["volumeName"].(string)))
}

// Two snapshots of one name, in two namespaces, must not share a content.
func TestSnapshotsOfOneNameInTwoNamespaces(t *testing.T) {
	s, d := newDiskServer(t)
	driveUntilEnd(t, d)
	d.Keep("other", "of another volume")
	b := cutClaim(t)
	twin := cutClaim(t)
	for i := range twin.items {
		item := twin.items[i]
		if item.Resource == "persistentvolumes" {
			continue
		}
		body := bytes.ReplaceAll(twin.bodies[item.Path], []byte(`"namespace":"a"`), []byte(`"namespace":"z"`))
		body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("snapcontent-1"), []byte("snapcontent-2")), []byte("physical"), []byte("other"))
		item.Path += "z"
		if item.Namespace != "" {
			item.Namespace = "z"
		} else {
			item.Name = "snapcontent-2"
		}
		b.items, b.bodies[item.Path] = append(b.items, item), body
	}
	f := runFilled(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, "as at the cut", d.File(claimSpec(s, "a")["volumeName"].(string)))
	require.Equal(t, "of another volume", d.File(claimSpec(s, "z")["volumeName"].(string)))
}

// Promise P3: a successor makes no second content and no second volume, however far the first
// holder came, with its records or without.
func TestNoPairIsMadeTwice(t *testing.T) {
	for _, blind := range []bool{false, true} {
		for writes := 1; writes <= 5; writes++ { // namespace, content, snapshot, claim, volume
			t.Run(fmt.Sprintf("blind %t, death at write %d", blind, writes), func(t *testing.T) {
				s, d := newDiskServer(t)
				driveUntilEnd(t, d)
				f := runFilled(t, s, cutClaim(t), toB(), func(config *restore.Config) {
					records := runFirstOwner(t, config, func(ctx context.Context, die func(), own *restore.Config) {
						var leave func()
						own.REST, leave = s.OpenFaultyDoor(dyingAt(ctx, writes, die))
						defer leave()
						require.Error(t, restore.Run(ctx, *own))
					})
					config.History = &outcome.History{Resumed: true, NoHistory: true}
					if !blind {
						replayRecords(t, config, records)
					}
				})
				require.Empty(t, f.results.Errors.allMessages())
				require.Equal(t, 1, countBelow(s, groupPath+"/volumesnapshotcontents/"))
				require.Equal(t, 1, countBelow(s, groupPath+"/namespaces/b/volumesnapshots/"))
				require.Equal(t, 1, d.Made())
				require.Equal(t, "as at the cut", d.File(claimSpec(s, "b")["volumeName"].(string)))
				require.Equal(t, []string{"b/data(created)"}, f.list["v1/PersistentVolumeClaim"])
			})
		}
	}
}

// runFirstOwner runs a restore that another holder takes over, and returns the directory of its records.
func runFirstOwner(t *testing.T, config *restore.Config, do func(ctx context.Context, die func(), own *restore.Config)) (records string) {
	t.Helper()
	own, records := *config, t.TempDir()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	own.Recorder = outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), config.Clock, 1, t.TempDir())
	own.Recorder.SetPlan(config.Plan)
	own.Recorder.Planned(&outcome.Planned{})
	kept := keepRecords(t, own.Recorder, records)
	do(ctx, die, &own)
	kept()
	return records
}

// dyingAt ends a process at its n-th write, of which it gets no answer.
func dyingAt(ctx context.Context, n int, die func()) kubetest.Fault {
	var mu sync.Mutex
	return func(r *http.Request, _ map[string]any) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet || ctx.Err() != nil {
			return 0, ctx.Err() != nil
		}
		if n--; n == 0 {
			die()
		}
		return 0, n == 0
	}
}

// countBelow returns how many objects there are below a path.
func countBelow(s *kubetest.Server, path string) (n int) {
	for at := range s.Content() {
		if strings.HasPrefix(at, path) {
			n++
		}
	}
	return n
}

// A restore that is to stop leaves the claims to its successor.
func TestARestoreThatIsToStopWaitsForNoClaim(t *testing.T) {
	s, d := newDiskServer(t)
	f := runFilled(t, s, cutClaim(t), toB(), func(config *restore.Config) {
		records := runFirstOwner(t, config, func(ctx context.Context, _ func(), own *restore.Config) {
			stop := make(chan struct{})
			end := sync.OnceFunc(func() { close(stop) })
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodGet && r.URL.Path == groupPath+"/volumesnapshotcontents/"+pairName {
					end() // it waits
				}
				return 0, false
			})
			own.Stop, own.ResourceTimeout = stop, time.Hour
			require.ErrorIs(t, restore.Run(ctx, *own), dispatch.ErrStopped)
			require.Zero(t, own.Recorder.Counts().Errors)
		})
		s.Fail(nil)
		driveUntilEnd(t, d)
		replayRecords(t, config, records)
	})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, "as at the cut", d.File(claimSpec(s, "b")["volumeName"].(string)))
	require.Len(t, s.Requests("POST /api/v1/namespaces/b/persistentvolumeclaims"), 1)
}
