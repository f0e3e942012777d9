package restore_test

import (
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/action"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apitest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	mappedClaim  = "/api/v1/namespaces/b/persistentvolumeclaims/claim"
	manyVolumes  = "/api/v1/persistentvolumes"
	claimsMapped = "/api/v1/namespaces/b/persistentvolumeclaims"
)

func mapped() velerov1.RestoreSpec {
	return velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b"}}
}

// clone returns the volume that the claim in the mapped namespace names, and checks that it is one beside the volume in whose
// place it could not be.
func clone(t *testing.T, s *apitest.Server, f *finished) object {
	t.Helper()
	require.Empty(t, f.results.Errors.all())
	require.Empty(t, f.results.Warnings.all())
	require.Equal(t, []string{"pv(created)"}, f.list["v1/PersistentVolume"])
	name, _ := s.Object(mappedClaim)["spec"].(object)["volumeName"].(string)
	require.Regexp(t, `^velero-clone-[0-9a-f-]{36}$`, name)
	pv := s.Object(path.Join(manyVolumes, name))
	require.NotNil(t, pv)
	require.Equal(t, object{"velero.io/original-pv-name": "pv"}, apitest.Meta(pv)["annotations"])
	require.Equal(t, object{"persistentVolumeReclaimPolicy": "Delete", "hostPath": object{"path": "volume-1"},
		"claimRef": object{"namespace": "b", "name": "claim"}}, pv["spec"])
	return pv
}

// A namespace is cloned beside itself, whatever becomes of the volume that has the name.
func TestAVolumeForAnotherNamespaceGetsAnotherName(t *testing.T) {
	for name, pv := range map[string]object{
		"in use":                 leftover("Bound", "Delete"),
		"released, kept":         leftover("Released", "Retain"),
		"being deleted":          deleting(leftover("Bound", "Delete")),
		"another's of that name": {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "pv"}, "spec": object{"hostPath": object{"path": "live"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := apitest.Start(t), &cloud{}
			before := s.Put(pvPath, pv)
			clone(t, s, run(t, s, snapshotted(), mapped(), on(c)))
			require.Len(t, c.made, 1)
			require.Equal(t, before, s.Object(pvPath))
		})
	}
}

// The volume is not selected, and comes because an action on its claim asks for it, as Velero's built-in one does.
func TestAClaimNamesTheVolumeThatItsActionAskedFor(t *testing.T) {
	s, c, b := apitest.Start(t), &cloud{}, &backup{snapshots: snapshotted().snapshots}
	pv := leftover("Bound", "Delete")
	apitest.Meta(pv)["labels"] = object{"no": "label"}
	b.add("persistentvolumes", "v1", "PersistentVolume", "", "pv", pv)
	b.add("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "claim", object{"spec": object{"volumeName": "pv"}})
	s.Put(pvPath, leftover("Bound", "Delete"))
	spec := selected
	spec.NamespaceMapping = mapped().NamespaceMapping
	volume := action.Item{GroupResource: schema.GroupResource{Resource: "persistentvolumes"}, Name: "pv"}
	asking := asks("a.io/x", map[string][]action.Item{"PersistentVolumeClaim b/claim": {volume}, "PersistentVolumeClaim a/claim": {volume}})
	clone(t, s, run(t, s, b, spec, on(c), with(t, asking)))
}

// A plugin may rename the volume in SetVolumeID, as Velero allows it.
func TestAClaimNamesTheVolumeThatThePluginRenamed(t *testing.T) {
	s, c := apitest.Start(t), &cloud{rename: ptr.To("another")}
	f := run(t, s, snapshotted(), velerov1.RestoreSpec{}, on(c))
	require.Empty(t, f.results.Errors.all())
	require.Nil(t, s.Object(pvPath))
	require.Equal(t, object{"path": "volume-1"}, s.Object(manyVolumes + "/another")["spec"].(object)["hostPath"])
	require.Equal(t, "another", s.Object("/api/v1/namespaces/a/persistentvolumeclaims/claim")["spec"].(object)["volumeName"])
}

// Whoever goes on gives the volume, and its claim, the name that was recorded.
func TestATakerUsesTheOtherNameOfAVolume(t *testing.T) {
	for name, at := range map[string]func(method, path string) bool{
		"before the volume is created": func(method, path string) bool { return method == http.MethodPost && path == manyVolumes },
		"before the volume is created, and the other one is gone": func(method, path string) bool {
			return method == http.MethodPost && path == manyVolumes
		},
		"before the claim is created": func(method, path string) bool { return method == http.MethodPost && path == claimsMapped },
	} {
		t.Run(name, func(t *testing.T) {
			s, c := apitest.Start(t), &cloud{}
			s.Put(pvPath, leftover("Bound", "Delete"))
			f := run(t, s, snapshotted(), mapped(), on(c), func(config *restore.Config) {
				ctx, die := context.WithCancel(t.Context())
				door, shut := s.Door(func(r *http.Request, _ map[string]any) (int, bool) {
					if !at(r.Method, r.URL.Path) {
						return 0, false
					}
					die()
					return http.StatusServiceUnavailable, true
				})
				first, records := *config, t.TempDir()
				first.REST = door
				first.Recorder = outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), config.Clock, 10)
				first.Recorder.SetPlan(config.Plan)
				first.Recorder.Planned(&outcome.Planned{})
				stored := keepRecords(t, first.Recorder, records)
				require.ErrorIs(t, restore.Run(ctx, first), context.Canceled)
				shut()
				stored()
				if strings.Contains(name, "gone") {
					s.Delete(pvPath)
				}
				replay(t, config, records)
			})
			require.Len(t, c.made, 1)
			clone(t, s, f)
		})
	}
}
