package restore_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	pvrCollection = "/apis/velero.io/v1/namespaces/velero/podvolumerestores"
	dbPath        = "/api/v1/namespaces/b/pods/db-0"
)

func newPodVolumeServer(t *testing.T) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t)
	s.Serve("velero.io/v1", "podvolumerestores", "PodVolumeRestore", true)
	s.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	s.Put(classPath, object{"metadata": object{"name": "fast"}, "provisioner": csiDriver})
	s.Put("/api/v1/namespaces/velero", object{"metadata": object{"name": "velero"}})
	return s
}

// fileBackup is what a PodVolumeBackup of Pod a/db-0 says; claim is empty for a volume that is none.
func fileBackup(volume, claim, snapshot string) volumedata.Data {
	return volumedata.Data{Method: volumedata.PodVolumeBackup, Namespace: "a", Claim: claim, Pod: "db-0", PodVolume: volume, Stored: snapshot != "",
		Files: &volumedata.FileSnapshot{ID: snapshot, Phase: velerov1.PodVolumePhaseCompleted, Uploader: "kopia", Size: 42}}
}

func podMounting(claim string, more ...any) object {
	return object{
		"containers": []any{object{"name": "db", "image": "db", "securityContext": object{"runAsUser": 999.0}}},
		"volumes": append([]any{
			object{"name": "data", "persistentVolumeClaim": object{"claimName": claim}}, object{"name": "scratch", "emptyDir": object{}},
			object{"name": "settings", "configMap": object{"name": "settings"}}, object{"name": "restore-wait", "emptyDir": object{"of": "an earlier restore"}},
		}, more...),
		"initContainers": []any{object{"name": "restic-wait", "args": []any{"of an earlier restore"}}, object{"name": "schema"}},
	}
}

// filedPod is a backup of Pod a/db-0 with a claim and an emptyDir in file-system backups.
func filedPod() *backup {
	b := &backup{}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"persistentVolumeReclaimPolicy": "Retain",
		"claimRef": object{"namespace": "a", "name": "data", "uid": "old-data"}}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{
		"metadata": object{"annotations": object{"pv.kubernetes.io/bind-completed": "yes"}},
		"spec":     object{"volumeName": "pv", "storageClassName": "fast"}, "status": object{"phase": "Bound"}})
	b.addObject("pods", "v1", "Pod", "a", "db-0", object{"spec": podMounting("data"), "status": object{"phase": "Running"}})
	data := fileBackup("data", "data", "snap-data")
	data.Files.ClaimUID = "old-data"
	b.elsewhere = []volumedata.Data{data, fileBackup("scratch", "", "snap-scratch")}
	return b
}

// mountsClaim notes that a Pod of the backup mounts a claim, as the manifest does.
func (b *backup) mountsClaim(pod, claim string) {
	for i := range b.items {
		if b.items[i].Kind == "Pod" && b.items[i].Name == pod {
			b.items[i].References = append(b.items[i].References, manifest.Reference{Kind: "PersistentVolumeClaim", Namespace: b.items[i].Namespace, Name: claim, Relation: reference.Claims})
		}
	}
}

// runFiled runs a restore whose Pods can wait for their data.
func runFiled(t *testing.T, s *kubetest.Server, b *backup, spec velerov1.RestoreSpec, change ...func(*restore.Config)) *finishedRestore {
	t.Helper()
	able := func(c *restore.Config) { c.WaitImage, c.Location = "mover:1", "bucket" }
	return runRestore(t, s, b, spec, append([]func(*restore.Config){able}, change...)...)
}

// requestsOf returns the PodVolumeRestores by the volumes that they fill.
func requestsOf(t *testing.T, s *kubetest.Server) map[string]object {
	t.Helper()
	found := map[string]object{}
	for path := range s.Content() {
		if !strings.Contains(path, "/podvolumerestores/") {
			continue
		}
		o := s.Object(path)
		name := o["spec"].(object)["volume"].(string)
		require.NotContains(t, found, name)
		found[name] = o
	}
	return found
}

func waitContainer(s *kubetest.Server, path string) object {
	containers, _ := s.Object(path)["spec"].(object)["initContainers"].([]any)
	if len(containers) == 0 || containers[0].(object)["name"] != "restore-wait" {
		return nil
	}
	return containers[0].(object)
}

func TestAPodWaitsForTheDataOfItsVolumes(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runFiled(t, s, filedPod(), toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"pv(skipped)"}, f.list["v1/PersistentVolume"], "its claim gets a new volume")
	require.NotContains(t, claimSpec(s, "b"), "volumeName")

	containers := s.Object(dbPath)["spec"].(object)["initContainers"].([]any)
	require.Len(t, containers, 2, "that of an earlier restore is gone")
	require.Equal(t, "schema", containers[1].(object)["name"])
	require.Equal(t, object{
		"name": "restore-wait", "image": "mover:1", "args": []any{"wait", string(restoreUID), "--state", "/restore-state"},
		"volumeMounts":    []any{object{"name": "data", "mountPath": "/restores/data"}, object{"name": "scratch", "mountPath": "/restores/scratch"}, object{"name": "restore-wait", "mountPath": "/restore-state"}},
		"securityContext": object{"runAsUser": 999.0},
		"resources":       object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"cpu": "100m", "memory": "128Mi"}},
	}, containers[0])

	volumes := s.Object(dbPath)["spec"].(object)["volumes"].([]any)
	require.Len(t, volumes, 4)
	require.Equal(t, object{"name": "restore-wait", "emptyDir": object{}}, volumes[3])

	requests := requestsOf(t, s)
	require.Len(t, requests, 2)
	uid := s.UID(dbPath)
	pod := object{"kind": "Pod", "namespace": "b", "name": "db-0", "uid": uid}
	for volume, claimUID := range map[string]string{"data": "old-data", "scratch": ""} {
		r := requests[volume]
		require.Equal(t, object{"pod": pod, "volume": volume, "backupStorageLocation": "bucket", "repoIdentifier": "", "uploaderType": "kopia",
			"snapshotID": "snap-" + volume, "sourceNamespace": "a", "snapshotSize": 42.0}, r["spec"])
		labels := kubetest.Meta(r)["labels"].(object)
		require.Equal(t, []any{"r", string(restoreUID), uid}, []any{labels["velero.io/restore-name"], labels["velero.io/restore-uid"], labels["velero.io/pod-uid"]})
		if claimUID == "" {
			require.NotContains(t, labels, "velero.io/pvc-uid")
		} else {
			require.Equal(t, claimUID, labels["velero.io/pvc-uid"])
		}
		require.Equal(t, []any{object{"apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": string(restoreUID), "controller": true}}, kubetest.Meta(r)["ownerReferences"])
		require.Regexp(t, `^r-[0-9a-f]{12}$`, kubetest.Meta(r)["name"])
	}
	begun := f.recorder.Operations()
	require.Len(t, begun, 2)
	items := map[string]string{}
	for _, o := range begun {
		require.Equal(t, []string{"holdfast.io/pod-volume-restore", "RestoreItemActionV2"}, []string{o.Action, o.Kind})
		items[o.Item.String()] = o.ID
	}
	for volume, item := range map[string]string{"data": "persistentvolumeclaims b/data", "scratch": "pods b/db-0"} {
		require.Equal(t, "pvr."+kubetest.Meta(requests[volume])["labels"].(object)["holdfast.io/volume-operation"].(string)+".1", items[item])
	}
}

// A Pod of the cluster is not stopped for data of the backup: it gets no request, and a warning.
func TestAPodThatTheClusterHasIsNotFilled(t *testing.T) {
	s := newPodVolumeServer(t)
	s.Put("/api/v1/namespaces/b", object{"metadata": object{"name": "b"}})
	s.Put(dbPath, object{"metadata": object{"name": "db-0", "namespace": "b"}, "spec": podMounting("data")})
	f := runFiled(t, s, filedPod(), toB())
	require.Contains(t, f.results.Warnings.allMessages(), "pods b/db-0: the Pod was not created by this restore: the data of its volumes is not restored: volume data, claim data; volume scratch")
	require.Empty(t, requestsOf(t, s))
	require.Empty(t, f.recorder.Operations())
	require.Nil(t, waitContainer(s, dbPath))
}

// A claim of several Pods is filled once, and each Pod waits for it.
func TestASharedClaimIsFilledOnce(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	b.elsewhere = b.elsewhere[:1]
	b.addObject("pods", "v1", "Pod", "a", "db-1", object{"spec": podMounting("data")})
	b.mountsClaim("db-1", "data")
	f := runFiled(t, s, b, toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Len(t, requestsOf(t, s), 1)
	require.Len(t, f.recorder.Operations(), 1)
	for _, pod := range []string{"db-0", "db-1"} {
		c := waitContainer(s, "/api/v1/namespaces/b/pods/"+pod)
		require.Equal(t, []any{"wait", string(restoreUID), "--state", "/restore-state", "--pod", pod, "--shared", "data=2"}, c["args"], "the last of both removes the file that they wait for")
	}
}

// The claim of a generic ephemeral volume is its controller's, and not in the restore.
func TestAnEphemeralVolumeIsFilled(t *testing.T) {
	s, b := newPodVolumeServer(t), &backup{}
	b.addObject("pods", "v1", "Pod", "a", "db-0", object{"spec": object{
		"containers": []any{object{"name": "db"}}, "volumes": []any{object{"name": "work", "ephemeral": object{"volumeClaimTemplate": object{}}}}}})
	b.elsewhere = []volumedata.Data{fileBackup("work", "db-0-work", "snap-work")}
	f := runFiled(t, s, b, toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.NotNil(t, waitContainer(s, dbPath))
	require.Equal(t, "snap-work", requestsOf(t, s)["work"]["spec"].(object)["snapshotID"])
}

// A claim is filled with a Pod: without one it stays empty, which is an error.
func TestAClaimWithoutItsPodIsAnError(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	spec := toB()
	spec.ExcludedResources = []string{"pods"}
	f := runFiled(t, s, b, spec)
	require.Equal(t, "persistentvolumeclaims b/data: claim data: its data is restored with a Pod that mounts it (db-0), and none is part of the restore: the claim gets a new, empty volume",
		f.results.Errors.allMessages())
	require.NotContains(t, claimSpec(s, "b"), "volumeName")

	t.Run("another Pod mounts it", func(t *testing.T) {
		s, b := newPodVolumeServer(t), filedPod()
		b.addObject("pods", "v1", "Pod", "a", "db-1", object{"metadata": object{"labels": object{"app": "x"}}, "spec": podMounting("data")})
		b.mountsClaim("db-1", "data")
		for i := range b.items {
			if b.items[i].Kind == "PersistentVolumeClaim" {
				b.items[i].Labels = map[string]string{"app": "x"}
			}
		}
		spec := toB()
		spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
		f := runFiled(t, s, b, spec)
		require.Empty(t, f.results.Errors.allMessages())
		require.Len(t, requestsOf(t, s), 1)
		require.Equal(t, []any{"wait", string(restoreUID), "--state", "/restore-state"}, waitContainer(s, "/api/v1/namespaces/b/pods/db-1")["args"])
	})
}

func TestDataThatCannotBeRestoredIsAnError(t *testing.T) {
	for want, change := range map[string]func(b *backup){
		"persistentvolumeclaims b/data: claim data: its PodVolumeBackup is Failed and has no snapshot": func(b *backup) {
			b.elsewhere[0].Files.ID, b.elsewhere[0].Files.Phase = "", velerov1.PodVolumePhaseFailed
		},
		`persistentvolumeclaims b/data: claim data: its data is in a repository of uploader "restic"`: func(b *backup) { b.elsewhere[0].Files.Uploader = "restic" },
		"persistentvolumeclaims b/data: claim data: its data is in a PodVolumeBackup, which the backup does not list": func(b *backup) {
			b.elsewhere[0].Files = nil
		},
		"pods b/db-0: volume scratch of the pod: its PodVolumeBackup is Completed and has no snapshot": func(b *backup) { b.elsewhere[1].Files.ID = "" },
	} {
		t.Run(want, func(t *testing.T) {
			s, b := newPodVolumeServer(t), filedPod()
			b.items = b.items[1:] // without the volume, which has the same error
			change(b)
			f := runFiled(t, s, b, toB())
			require.Contains(t, f.results.Errors.allMessages(), want)
			require.Equal(t, 1, f.recorder.Counts().Errors)
			require.Len(t, requestsOf(t, s), 1, "the other volume is filled")
			require.Len(t, waitContainer(s, dbPath)["volumeMounts"], 2, "one volume, and that of the container")
		})
	}
}

func TestAnIncompleteSnapshotIsRestoredWithAWarning(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	b.elsewhere[0].Files.Phase = velerov1.PodVolumePhaseFailed
	f := runFiled(t, s, b, toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, "pods b/db-0: volume data, claim data: its PodVolumeBackup is Failed: what that could not read is not in the snapshot", f.results.Warnings.allMessages())
	require.Len(t, requestsOf(t, s), 2)
}

// A server without the image of the mover restores Pods as if they had no data, and says so.
func TestWithoutAnImageNoPodWaits(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runRestore(t, s, filedPod(), toB())
	require.Contains(t, f.results.Errors.allMessages(), "volume data, claim data: its data is in a PodVolumeBackup, which this server does not restore (--restore-wait-image is not set)")
	require.Equal(t, 2, f.recorder.Counts().Errors)
	require.Empty(t, requestsOf(t, s))
	require.Nil(t, waitContainer(s, dbPath))
}

// A Pod whose data was in a restore before this one would wait for that for ever.
func TestAnOldWaitContainerIsLeftOut(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	b.elsewhere = nil
	f := runFiled(t, s, b, toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []any{object{"name": "schema"}}, s.Object(dbPath)["spec"].(object)["initContainers"])
}

func TestARequestThatIsRefusedIsAnErrorOfItsVolume(t *testing.T) {
	s := newPodVolumeServer(t)
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if spec, _ := body["spec"].(object); r.Method == http.MethodPost && r.URL.Path == pvrCollection && spec["volume"] == "data" {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runFiled(t, s, filedPod(), toB())
	require.Contains(t, f.results.Errors.allMessages(), "pods b/db-0: volume data, claim data: its data is not restored, and the Pod waits for it: create PodVolumeRestore r-")
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Len(t, f.recorder.Operations(), 1, "the other volume is followed")
	require.Equal(t, []string{"b/db-0(created)"}, f.list["v1/Pod"])
}

func TestAnotherObjectOfTheNameOfARequestIsAnError(t *testing.T) {
	s := newPodVolumeServer(t)
	runFiled(t, s, filedPod(), toB())
	name := kubetest.Meta(requestsOf(t, s)["data"])["name"].(string)

	s = newPodVolumeServer(t)
	s.Put(pvrCollection+"/"+name, object{"metadata": object{"name": name, "namespace": "velero"}, "spec": object{"volume": "other"}})
	f := runFiled(t, s, filedPod(), toB())
	require.Contains(t, f.results.Errors.allMessages(), "PodVolumeRestore "+name+" is in the cluster, and not of this restore")
}

// The Pods of a Job are made anew by the Job: what their volumes held is reported.
func TestTheDataOfAPodThatIsLeftOutIsAWarning(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	b.items = b.items[:2]
	b.addObject("jobs.batch", "batch/v1", "Job", "a", "job", nil)
	b.addObject("pods", "v1", "Pod", "a", "db-0", object{"spec": podMounting("data")}, ownerBy("batch/v1", "Job", "job", true))
	f := runFiled(t, s, b, toB())
	require.Contains(t, f.results.Warnings.allMessages(), "; the data of its volumes is not restored: volume data, claim data; volume scratch")
	require.Empty(t, requestsOf(t, s))
}

func TestAVolumeThatThePodLostIsAWarning(t *testing.T) {
	s, b := newPodVolumeServer(t), filedPod()
	b.elsewhere = append(b.elsewhere, fileBackup("gone", "", "snap-gone"))
	f := runFiled(t, s, b, toB())
	require.Equal(t, "pods b/db-0: volume gone: the Pod has no such volume of files any more: its data is not restored", f.results.Warnings.allMessages())
	require.Len(t, requestsOf(t, s), 2)
}

func TestADryRunMakesNoRequest(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runFiled(t, s, filedPod(), toB(), func(c *restore.Config) { c.DryRun = &apply.DryRun{} })
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, s.Requests("POST "))
	require.Empty(t, f.recorder.Operations())
	require.Equal(t, []string{"b/db-0(created)"}, f.list["v1/Pod"])
}

// Where the location cannot be written nothing is waited for: the data comes, and nobody looks.
func TestUnrecordedRequestsAreErrors(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runFiled(t, s, filedPod(), toB(), func(c *restore.Config) { c.Unrecorded = true })
	require.Contains(t, f.results.Errors.allMessages(), "volume scratch: whether its data is restored is not followed: the location cannot be written")
	require.Len(t, requestsOf(t, s), 2)
	require.Empty(t, f.recorder.Operations())
}

func TestSettingsOfTheRestoreAreInItsRequests(t *testing.T) {
	s, spec := newPodVolumeServer(t), toB()
	spec.UploaderConfig = &velerov1.UploaderConfigForRestore{ParallelFilesDownload: 3}
	runFiled(t, s, filedPod(), spec, func(c *restore.Config) { c.OverwriteVolumes = true })
	require.Equal(t, object{"WriteSparseFiles": "false", "ParallelFilesDownload": "3", "Overwrite": "true"}, requestsOf(t, s)["data"]["spec"].(object)["uploaderSettings"])
}

// A Pod is not created with another init container than was asked for.
func TestAPodIsNotCreatedWithoutTheConfigurationOfItsInitContainer(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runFiled(t, s, filedPod(), toB(), func(c *restore.Config) {
		c.WaitConfig = func(context.Context) (*podvolume.WaitConfig, error) {
			return podvolume.ParseWaitConfig(map[string]string{"memLimit": "much"})
		}
	})
	require.Contains(t, f.results.Errors.allMessages(), "pods b/db-0: invalid configuration of the init container restore-wait: memLimit")
	require.Nil(t, s.Object(dbPath))
	require.Empty(t, requestsOf(t, s))
}

// No list of operations takes more: what is beyond is restored, and not followed.
func TestSoManyRequestsAreFollowed(t *testing.T) {
	s := newPodVolumeServer(t)
	f := runFiled(t, s, filedPod(), toB(), func(c *restore.Config) {
		e := c.Recorder.Begin(outcome.General) // an earlier holder of the restore
		for i := range operation.MaxOperations - 1 {
			e.Began(&operation.Operation{Action: podvolume.NameRestore, ID: fmt.Sprint(i)})
		}
		e.Commit()
	})
	require.Contains(t, f.results.Errors.allMessages(), "whether its data is restored is not followed: too large: the job has 10000 operations")
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Len(t, f.recorder.Operations(), operation.MaxOperations)
	require.Len(t, requestsOf(t, s), 2)
}

// A Pod that this restore created, and another client deletes, has no volumes to fill any more.
func TestAPodThatWasDeletedAfterItsCreationIsNotFilled(t *testing.T) {
	s := newPodVolumeServer(t)
	s.Put("/api/v1/namespaces/b", object{"metadata": object{"name": "b"}})
	s.Put(dbPath, object{"metadata": object{"name": "db-0", "namespace": "b", "deletionTimestamp": "2026-01-02T03:04:05Z",
		"managedFields": []any{object{"manager": string(apply.ManagerOf(restoreUID)), "operation": "Update"}}}, "spec": podMounting("data")})
	f := runFiled(t, s, filedPod(), toB(), func(c *restore.Config) { c.History.Resumed = true })
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, requestsOf(t, s))
	require.Empty(t, f.recorder.Operations())
}
