package restore_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	mappedClaim  = "/api/v1/namespaces/b/persistentvolumeclaims/claim"
	manyVolumes  = "/api/v1/persistentvolumes"
	claimsMapped = "/api/v1/namespaces/b/persistentvolumeclaims"
)

func mappedSpec() velerov1.RestoreSpec {
	return velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b"}}
}

// clonedVolume returns the volume that the claim in the mapped namespace names, and checks that it is one
// beside the volume in whose place it could not be.
func clonedVolume(t *testing.T, s *kubetest.Server, f *finishedRestore) object {
	t.Helper()
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"pv(created)"}, f.list["v1/PersistentVolume"])
	name, _ := s.Object(mappedClaim)["spec"].(object)["volumeName"].(string)
	require.Regexp(t, `^velero-clone-[0-9a-f-]{36}$`, name)
	pv := s.Object(path.Join(manyVolumes, name))
	require.NotNil(t, pv)
	require.Equal(t, object{"velero.io/original-pv-name": "pv"}, kubetest.Meta(pv)["annotations"])
	require.Equal(t, object{"persistentVolumeReclaimPolicy": "Delete", "hostPath": object{"path": "volume-1"},
		"claimRef": object{"namespace": "b", "name": "claim"}}, pv["spec"])
	return pv
}

// A namespace is cloned beside itself, whatever becomes of the volume that has the name.
func TestAVolumeForAnotherNamespaceGetsAnotherName(t *testing.T) {
	for name, pv := range map[string]object{
		"set by the plugin too":  leftoverVolume("Bound", "Delete"),
		"in use":                 leftoverVolume("Bound", "Delete"),
		"released, kept":         leftoverVolume("Released", "Retain"),
		"being deleted":          withDeletion(leftoverVolume("Bound", "Delete")),
		"another's of that name": {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "pv"}, "spec": object{"hostPath": object{"path": "live"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			if name == "set by the plugin too" {
				c.rename = ptr.To("pv")
			}
			before := s.Put(pvPath, pv)
			clonedVolume(t, s, runRestore(t, s, newSnapshotBackup(), mappedSpec(), useCloud(c)))
			require.Len(t, c.made, 1)
			require.Equal(t, before, s.Object(pvPath))
			require.Len(t, s.Requests("GET "+manyVolumes+"/velero-clone-"), 1, "before it is made")
		})
	}
}

// The volume is not selected, and is an additional item of an action on its claim, as of Velero's
// built-in one.
func TestAClaimNamesTheVolumeThatItsActionAskedFor(t *testing.T) {
	s, c, b := kubetest.Start(t), &cloud{}, &backup{snapshots: newSnapshotBackup().snapshots}
	pv := leftoverVolume("Bound", "Delete")
	kubetest.Meta(pv)["labels"] = object{"no": "label"}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", pv)
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "claim", object{"spec": object{"volumeName": "pv"}})
	s.Put(pvPath, leftoverVolume("Bound", "Delete"))
	spec := selected
	spec.NamespaceMapping = mappedSpec().NamespaceMapping
	volume := action.Item{GroupResource: schema.GroupResource{Resource: "persistentvolumes"}, Name: "pv"}
	asking := additionalAction("a.io/x", map[string][]action.Item{"PersistentVolumeClaim b/claim": {volume}, "PersistentVolumeClaim a/claim": {volume}})
	clonedVolume(t, s, runRestore(t, s, b, spec, useCloud(c), withActions(t, asking)))
}

// A plugin may rename the volume in SetVolumeID, as Velero allows it.
func TestAClaimNamesTheVolumeThatThePluginRenamed(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{rename: ptr.To("another")}
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c))
	require.Empty(t, f.results.Errors.allMessages())
	require.Nil(t, s.Object(pvPath))
	require.Equal(t, object{"path": "volume-1"}, s.Object(manyVolumes + "/another")["spec"].(object)["hostPath"])
	require.Equal(t, "another", s.Object("/api/v1/namespaces/a/persistentvolumeclaims/claim")["spec"].(object)["volumeName"])
}

// runKilledOwner runs a restore until its runner is killed at the request that at selects. It returns the
// directory of its records.
func runKilledOwner(t *testing.T, config restore.Config, at func(r *http.Request) bool, s *kubetest.Server, earlier ...string) (records string) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	door, shut := s.OpenFaultyDoor(func(r *http.Request, _ map[string]any) (int, bool) {
		if !at(r) {
			return 0, false
		}
		die()
		return http.StatusServiceUnavailable, true
	})
	records = t.TempDir()
	config.REST = door
	config.Recorder = outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), config.Clock, 10, t.TempDir())
	config.Recorder.SetPlan(config.Plan)
	if len(earlier) > 0 {
		replayRecords(t, &config, earlier...)
		config.Recorder.Open()
	} else {
		config.Recorder.Planned(&outcome.Planned{})
	}
	stored := keepRecords(t, config.Recorder, records)
	require.ErrorIs(t, restore.Run(ctx, config), context.Canceled)
	shut()
	stored()
	return records
}

func isCreating(path string) func(r *http.Request) bool {
	return func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == path }
}

// A successor gives the volume, and its claim, the name that was recorded.
func TestASuccessorUsesTheOtherNameOfAVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		at   string
		gone bool // the volume that has the name
	}{
		"before the volume is created":                            {at: manyVolumes},
		"before the volume is created, and the other one is gone": {at: manyVolumes, gone: true},
		"before the claim is created":                             {at: claimsMapped},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, leftoverVolume("Bound", "Delete"))
			f := runRestore(t, s, newSnapshotBackup(), mappedSpec(), useCloud(c), func(config *restore.Config) {
				records := runKilledOwner(t, *config, isCreating(tt.at), s)
				if tt.gone {
					s.Delete(pvPath)
				}
				replayRecords(t, config, records)
			})
			require.Len(t, c.made, 1)
			clonedVolume(t, s, f)
		})
	}
}

// The name was free when the volume was made, and is taken when the second runner resumes, which is
// killed too.
func TestANameThatIsTakenMeanwhileIsRecorded(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	f := runRestore(t, s, newSnapshotBackup(), mappedSpec(), useCloud(c), func(config *restore.Config) {
		first := runKilledOwner(t, *config, isCreating(manyVolumes), s)
		s.Put(pvPath, leftoverVolume("Bound", "Delete"))
		replayRecords(t, config, first, runKilledOwner(t, *config, isCreating(claimsMapped), s, first))
	})
	require.Len(t, c.made, 1)
	var info bytes.Buffer
	require.NoError(t, f.recorder.Files().WriteVolumeInfo(&info, nil))
	require.Contains(t, info.String(), kubetest.Meta(clonedVolume(t, s, f))["name"])
}

// Without the records of who made it, a volume is recognized by its name.
func TestABlindSuccessorFindsTheVolumeUnderItsOtherName(t *testing.T) {
	for name, gone := range map[string]bool{"beside the other one": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			s, c := kubetest.Start(t), &cloud{}
			s.Put(pvPath, leftoverVolume("Bound", "Delete"))
			clonedVolume(t, s, runRestore(t, s, newSnapshotBackup(), mappedSpec(), useCloud(c), func(config *restore.Config) {
				runKilledOwner(t, *config, isCreating(claimsMapped), s)
				if gone {
					s.Delete(pvPath)
				}
				config.History = &outcome.History{Resumed: true, NoHistory: true}
			}))
			require.Len(t, c.made, 1)
		})
	}
}

// prefixing names what it restores after what it is given.
type prefixing struct {
	*cloud
	given []string
}

func (p *prefixing) Open(context.Context, string) (action.VolumeSnapshotter, error) { return p, nil }

func (p *prefixing) SetVolumeID(ctx context.Context, pv *action.Object, id string) (*action.Object, error) {
	i, err := pv.Identity()
	if err != nil {
		return nil, err
	}
	p.given = append(p.given, i.Name)
	p.cloud.rename = ptr.To("x-" + i.Name)
	return p.cloud.SetVolumeID(ctx, pv, id)
}

func TestEachHolderGivesThePluginTheNameInTheBackup(t *testing.T) {
	s, p := kubetest.Start(t), &prefixing{cloud: &cloud{}}
	f := runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, func(config *restore.Config) {
		config.Snapshotters = p
		replayRecords(t, config, runKilledOwner(t, *config, isCreating(manyVolumes), s))
	})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"pv", "pv"}, p.given)
	require.NotNil(t, s.Object(manyVolumes+"/x-pv"))
	require.Equal(t, "x-pv", s.Object("/api/v1/namespaces/a/persistentvolumeclaims/claim")["spec"].(object)["volumeName"])
}

// What belongs to the volume names it as it is called in the cluster, or the garbage collector
// would remove it.
func TestWhatARenamedVolumeOwnsAndManages(t *testing.T) {
	s, c, b := kubetest.Start(t), &cloud{}, &backup{snapshots: newSnapshotBackup().snapshots}
	pv := leftoverVolume("Bound", "Delete")
	kubetest.Meta(pv)["managedFields"] = []any{object{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": object{}}}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", pv)
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "claim", object{"spec": object{"volumeName": "pv"}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "owned", nil, ownerBy("v1", "PersistentVolume", "pv", false))
	s.Put(pvPath, leftoverVolume("Bound", "Delete"))
	f := runRestore(t, s, b, mappedSpec(), useCloud(c))
	owner := kubetest.Meta(s.Object("/api/v1/namespaces/b/configmaps/owned"))["ownerReferences"].([]any)[0].(object)
	require.Equal(t, kubetest.Meta(clonedVolume(t, s, f))["name"], owner["name"])
}
