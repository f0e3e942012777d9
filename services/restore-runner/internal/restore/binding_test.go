package restore_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const claimPath = "/api/v1/namespaces/a/persistentvolumeclaims/claim"

// claimsOnly leaves volumes out.
func claimsOnly() velerov1.RestoreSpec {
	return velerov1.RestoreSpec{IncludedResources: []string{"persistentvolumeclaims"}}
}

// boundBackup has a claim and the volume that it is bound to.
func boundBackup(policy string) *backup {
	b := &backup{}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"persistentVolumeReclaimPolicy": policy, "storageClassName": "manual",
		"hostPath": object{"path": "old"}, "claimRef": object{"namespace": "a", "name": "claim", "uid": "old-claim", "resourceVersion": "3"}}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "claim", object{"spec": object{"volumeName": "pv", "storageClassName": "manual"}})
	return b
}

func startStorage(t *testing.T) *kubetest.Server {
	s := kubetest.Start(t)
	s.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	return s
}

func liveVolume(change func(spec, meta, status object)) object {
	spec := object{"persistentVolumeReclaimPolicy": "Retain", "storageClassName": "manual", "hostPath": object{"path": "old"},
		"claimRef": object{"namespace": "a", "name": "claim", "uid": "old-claim", "resourceVersion": "3"}}
	meta, status := object{"name": "pv"}, object{"phase": "Released"}
	change(spec, meta, status)
	return object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec, "status": status}
}

// Claims whose volume was in another claim's hands, or nowhere, stayed Pending without a word.
func TestAClaimWhoseVolumeIsNotForItIsAWarning(t *testing.T) {
	mapped := velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b"}}
	for name, tt := range map[string]struct {
		live  object
		spec  velerov1.RestoreSpec
		says  string // "" for no warning
		freed bool
	}{
		"free":                 {live: liveVolume(func(spec, _, _ object) { delete(spec, "claimRef") }), spec: claimsOnly()},
		"reserved for it":      {live: liveVolume(func(spec, _, _ object) { spec["claimRef"] = object{"namespace": "a", "name": "claim"} }), spec: claimsOnly()},
		"left by its claim":    {live: liveVolume(func(_, _, _ object) {}), freed: true},
		"not noticed yet":      {live: liveVolume(func(_, _, status object) { status["phase"] = "Bound" }), freed: true},
		"left, to be deleted":  {live: liveVolume(func(spec, _, _ object) { spec["persistentVolumeReclaimPolicy"] = "Delete" }), spec: claimsOnly(), says: "has reclaim policy Delete"},
		"left, to be recycled": {live: liveVolume(func(spec, _, _ object) { spec["persistentVolumeReclaimPolicy"] = "Recycle" }), spec: claimsOnly(), says: "has reclaim policy Recycle"},
		"another's":            {live: liveVolume(func(spec, _, _ object) { spec["claimRef"].(object)["name"] = "other" }), spec: claimsOnly(), says: "reserved for, claim a/other"},
		"of another namespace": {live: liveVolume(func(_, _, _ object) {}), spec: mapped, says: "reserved for, claim a/claim"},
		"being deleted":        {live: withDeletion(liveVolume(func(_, _, _ object) {})), spec: claimsOnly(), says: "is being deleted"},
		"failed":               {live: liveVolume(func(_, _, status object) { status["phase"] = "Failed" }), spec: claimsOnly(), says: "is Failed"},
		"restored with it":     {},
		"nowhere":              {spec: claimsOnly(), says: `PersistentVolume "pv", which the claim names, is neither part of the restore nor in the cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStorage(t)
			s.Put("/apis/storage.k8s.io/v1/storageclasses/manual", object{"metadata": object{"name": "manual"}, "provisioner": "disk.example.com"})
			if tt.live != nil {
				s.Put(pvPath, tt.live)
			}
			f := runRestore(t, s, boundBackup("Retain"), tt.spec)
			require.Empty(t, f.results.Errors.allMessages())
			if tt.says == "" {
				require.Empty(t, f.results.Warnings.allMessages())
			} else {
				require.Contains(t, f.results.Warnings.allMessages(), tt.says)
			}
			spec, _ := s.Object(pvPath)["spec"].(object)
			ref, _ := spec["claimRef"].(object)
			switch {
			case tt.freed:
				require.Equal(t, object{"namespace": "a", "name": "claim"}, ref)
			case tt.live != nil:
				require.Equal(t, tt.live["spec"].(object)["claimRef"], s.Object(pvPath)["spec"].(object)["claimRef"], "the volume is left alone")
			}
			if name == "nowhere" {
				require.NotContains(t, s.Object(claimPath)["spec"], "volumeName", "another volume can be bound")
			}
		})
	}
}

// A claim that waited for a volume before is named again, one that is bound is not.
func TestAClaimThatIsThere(t *testing.T) {
	for phase, says := range map[string]string{"Bound": "", "Pending": "reserved for, claim a/other", "Lost": "reserved for, claim a/other"} {
		t.Run(phase, func(t *testing.T) {
			s := startStorage(t)
			s.Put(pvPath, liveVolume(func(spec, _, _ object) { spec["claimRef"].(object)["name"] = "other" }))
			s.Put(claimPath, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": "claim", "namespace": "a"},
				"spec": object{"volumeName": "pv", "storageClassName": "manual"}, "status": object{"phase": phase}})
			f := runRestore(t, s, boundBackup("Retain"), claimsOnly())
			require.Equal(t, []string{"a/claim(skipped)"}, f.list["v1/PersistentVolumeClaim"])
			if says == "" {
				require.Empty(t, f.results.Warnings.allMessages())
				return
			}
			require.Contains(t, f.results.Warnings.allMessages(), says)
		})
	}
}

// Of a claim without a volume the class decides, and the volumes that are free of it.
func TestAClaimWhoseClassMakesNoVolumeIsAWarning(t *testing.T) {
	class := func(name string, fields object) object {
		fields["metadata"] = object{"name": name, "annotations": fields["annotations"]}
		delete(fields, "annotations")
		return fields
	}
	for name, tt := range map[string]struct {
		class     any // of both claims
		annotated any // the same
		live      object
		free      int    // volumes of it
		kept      string // claim that a volume is reserved for
		waits     int    // claims that are named
		says      string
	}{
		"provisions":        {class: "fast", live: class("fast", object{"provisioner": "disk.example.com"})},
		"with the consumer": {class: "fast", free: 2, live: class("fast", object{"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})},
		"with no consumer": {class: "fast", live: class("fast", object{"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}), waits: 2,
			says: `StorageClass "fast" provisions no volumes`},
		"provisions nothing":           {class: "fast", live: class("fast", object{"provisioner": "kubernetes.io/no-provisioner"}), waits: 2, says: `StorageClass "fast" provisions no volumes`},
		"missing":                      {class: "fast", waits: 2, says: `StorageClass "fast" is not in the cluster`},
		"missing, a free volume":       {class: "fast", free: 1, waits: 1, says: `StorageClass "fast" is not in the cluster`},
		"missing, a volume of its own": {class: "fast", kept: "two", waits: 1, says: `StorageClass "fast" is not in the cluster`},
		"missing, free volumes":        {class: "fast", free: 2},
		"none is asked for":            {class: "", free: 1, waits: 1, says: `its StorageClass is ""`},
		"none, no default":             {live: class("fast", object{"provisioner": "disk.example.com"}), waits: 2, says: "it names no StorageClass, the cluster has no default one"},
		"the default":                  {live: class("fast", object{"provisioner": "disk.example.com", "annotations": object{"storageclass.kubernetes.io/is-default-class": "true"}})},
		"the default, formerly":        {live: class("fast", object{"provisioner": "disk.example.com", "annotations": object{"storageclass.beta.kubernetes.io/is-default-class": "true"}})},
		"not the default":              {live: class("fast", object{"provisioner": "disk.example.com", "annotations": object{"storageclass.beta.kubernetes.io/is-default-class": "false"}}), waits: 2, says: "no default one"},
		"by annotation":                {annotated: "fast", live: class("fast", object{"provisioner": "disk.example.com"})},
		"by annotation, missing":       {class: "other", annotated: "fast", free: 1, waits: 1, says: `StorageClass "fast" is not in the cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := startStorage(t), &backup{}
			if tt.live != nil {
				s.Put("/apis/storage.k8s.io/v1/storageclasses/"+kubetest.Meta(tt.live)["name"].(string), tt.live)
			}
			for i := range tt.free {
				path := fmt.Sprint(manyVolumes, "/free-", i)
				meta := object{"name": fmt.Sprint("free-", i)}
				if tt.annotated != nil {
					meta["annotations"] = object{"volume.beta.kubernetes.io/storage-class": tt.annotated}
				}
				s.Put(path, object{"metadata": meta, "spec": object{"storageClassName": tt.class}})
			}
			s.Put(pvPath, liveVolume(func(spec, _, status object) {
				spec["storageClassName"] = tt.class
				if tt.kept != "" {
					spec["claimRef"], status["phase"] = object{"namespace": "a", "name": tt.kept}, "Available"
				}
			}))
			spec := object{}
			if tt.class != nil {
				spec["storageClassName"] = tt.class
			}
			for _, claim := range []string{"one", "two"} {
				body := object{"spec": spec}
				if tt.annotated != nil {
					body["metadata"] = object{"annotations": object{"volume.beta.kubernetes.io/storage-class": tt.annotated}}
				}
				b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", claim, body)
			}
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Len(t, f.results.Warnings.Namespaces["a"], tt.waits, f.results.Warnings.allMessages())
			for _, message := range f.results.Warnings.Namespaces["a"] {
				require.Contains(t, message, tt.says)
				require.Contains(t, message, "stays Pending")
			}
		})
	}
}

func TestADryRunKnowsTheStorageClassesOfThePlan(t *testing.T) {
	s, b := startStorage(t), &backup{}
	b.addObject("storageclasses.storage.k8s.io", "storage.k8s.io/v1", "StorageClass", "", "fast", object{"provisioner": "disk.example.com"})
	for _, class := range []string{"fast", "gone"} {
		b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", class, object{"spec": object{"storageClassName": class}})
	}
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.DryRun = &apply.DryRun{} })
	require.Empty(t, f.results.Errors.allMessages())
	require.Len(t, f.results.Warnings.Namespaces["a"], 1, f.results.Warnings.allMessages())
	require.Contains(t, f.results.Warnings.Namespaces["a"][0], `StorageClass "gone" is not in the cluster`)
}

// A volume that came back without the UID of its live claim was not given back to the claim.
func TestAVolumeIsGivenBackToItsLiveClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		claim object
		uid   any
	}{
		"live":          {object{"metadata": object{"name": "claim", "uid": "new-claim"}, "spec": object{"volumeName": "pv"}, "status": object{"phase": "Lost"}}, "new-claim"},
		"of another":    {object{"metadata": object{"name": "claim", "uid": "new-claim"}, "spec": object{"volumeName": "other"}}, nil},
		"being deleted": {withDeletion(object{"metadata": object{"name": "claim", "uid": "new-claim"}, "spec": object{"volumeName": "pv"}}), nil},
		"gone":          {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStorage(t)
			s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
			if tt.claim != nil {
				s.Put(claimPath, tt.claim)
			}
			f := runRestore(t, s, boundBackup("Retain"), velerov1.RestoreSpec{IncludedResources: []string{"persistentvolumes"}})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, tt.uid, s.Object(pvPath)["spec"].(object)["claimRef"].(object)["uid"])
		})
	}
}

// A runner that dies around the change of a volume leaves nothing undone, and another's change is not lost.
func TestAVolumeIsFreedOnce(t *testing.T) {
	for writes := 1; writes <= 4; writes++ { // namespace, volume, claim, freeing
		t.Run(fmt.Sprintf("death at write %d", writes), func(t *testing.T) {
			s := startStorage(t)
			s.Put(pvPath, liveVolume(func(_, _, _ object) {}))
			f := runRestore(t, s, boundBackup("Retain"), velerov1.RestoreSpec{}, func(config *restore.Config) {
				records := runFirstOwner(t, config, func(ctx context.Context, die func(), own *restore.Config) {
					var leave func()
					own.REST, leave = s.OpenFaultyDoor(dyingAt(ctx, writes, die))
					defer leave()
					_ = restore.Run(ctx, *own)
				})
				config.History = &outcome.History{Resumed: true}
				replayRecords(t, config, records)
			})
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, object{"namespace": "a", "name": "claim"}, s.Object(pvPath)["spec"].(object)["claimRef"])
		})
	}
	t.Run("changed meanwhile", func(t *testing.T) {
		s := startStorage(t)
		s.Put(pvPath, liveVolume(func(_, _, _ object) {}))
		changed := false
		s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
			if r.Method == http.MethodPatch && r.URL.Path == pvPath && !changed {
				changed = true
				s.Change(pvPath, func(pv map[string]any) { pv["spec"].(object)["claimRef"].(object)["name"] = "other" })
			}
			return 0, false
		})
		f := runRestore(t, s, boundBackup("Retain"), velerov1.RestoreSpec{})
		require.True(t, changed)
		require.Contains(t, f.results.Warnings.allMessages(), "reserved for, claim a/other")
		require.Equal(t, "old-claim", s.Object(pvPath)["spec"].(object)["claimRef"].(object)["uid"])
	})
}

// Each claim whose volume is not in the backup was a request.
func TestManyVolumesOutsideTheRestoreAreListedOnce(t *testing.T) {
	s, b := startStorage(t), &backup{}
	s.Put("/apis/storage.k8s.io/v1/storageclasses/manual", object{"metadata": object{"name": "manual"}, "provisioner": "disk.example.com"})
	for i := range 40 {
		b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", fmt.Sprint("claim-", i), object{"spec": object{"volumeName": fmt.Sprint("pv-", i), "storageClassName": "manual"}})
	}
	s.Put(manyVolumes+"/pv-39", liveVolume(func(spec, meta, _ object) {
		meta["name"] = "pv-39"
		spec["claimRef"] = object{"namespace": "a", "name": "claim-39"}
	}))
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Len(t, f.results.Warnings.Namespaces["a"], 39)
	require.Equal(t, "pv-39", s.Object("/api/v1/namespaces/a/persistentvolumeclaims/claim-39")["spec"].(object)["volumeName"])
	require.NotContains(t, s.Object("/api/v1/namespaces/a/persistentvolumeclaims/claim-38")["spec"], "volumeName")
	require.LessOrEqual(t, len(s.Requests("GET "+manyVolumes)), 10+1+1, "and pv-39 is read once more")
}
