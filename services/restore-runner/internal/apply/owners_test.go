package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// orphanAt is ConfigMap a/m as the restore created it, which lacks an owner.
func orphanAt(version string) apply.Orphan {
	owner := object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "owner"}
	return apply.Orphan{Target: storedRequest("configmaps", "ConfigMap", nil).Target, UID: "child", Version: version, Missing: []any{owner}}
}

func putConfigMap(s *kubetest.Server, uid, version string) {
	s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "m", "namespace": "a", "uid": uid, "resourceVersion": version}})
}

func TestAnOwnerIsAddedToTheObjectThatWasCreated(t *testing.T) {
	for name, version := range map[string]string{"as created": "7", "changed since": "6", "at an unknown version": ""} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			putConfigMap(s, "child", "7")
			out, err := c.Adopt(t.Context(), orphanAt(version))
			require.NoError(t, err)
			require.Empty(t, out.Notes)
			require.Len(t, kubetest.Meta(s.Object(mapPath))["ownerReferences"], 1)
		})
	}
}

// Catches a patch without the child's UID, and a read that does not compare it: an object that took
// the name of the restored one would get an owner, and the garbage collector would delete it with
// that owner. Only the UID distinguishes the two: the other object may have the requested version
// as well.
func TestAnotherObjectOfTheNameGetsNoOwner(t *testing.T) {
	for name, version := range map[string]string{"of the same version": "7", "of another version": "6", "at an unknown version": ""} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			putConfigMap(s, "another", "7")
			out, err := c.Adopt(t.Context(), orphanAt(version))
			require.NoError(t, err)
			require.Equal(t, []string{"owner references are not added: the object is gone"}, out.Notes)
			require.Nil(t, kubetest.Meta(s.Object(mapPath))["ownerReferences"])
		})
	}
}

// Catches the same where the object is replaced between a read and the patch.
func TestAnObjectReplacedBeforeThePatchGetsNoOwner(t *testing.T) {
	s, c, _ := startServer(t)
	putConfigMap(s, "child", "7")
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPatch {
			putConfigMap(s, "another", "7")
		}
		return 0, false
	})
	out, err := c.Adopt(t.Context(), orphanAt(""))
	require.NoError(t, err)
	require.Equal(t, []string{"owner references are not added: the object is gone"}, out.Notes)
	require.Nil(t, kubetest.Meta(s.Object(mapPath))["ownerReferences"])
}
