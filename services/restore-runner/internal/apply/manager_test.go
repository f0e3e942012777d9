package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Children of an object that is being deleted are collected with it: no reference is made to its
// UID, even if the restore created it.
func TestATerminatingObjectIsInTheWayAndNoOwner(t *testing.T) {
	for name, tt := range map[string]struct {
		managers []string
		want     apply.Action
		err      error
	}{
		"somebody's":         {[]string{"someone"}, apply.Failed, apply.ErrTerminating},
		"this restore's own": {[]string{string(ours)}, apply.Created, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			meta := managedBy(tt.managers...)
			meta["name"], meta["namespace"], meta["deletionTimestamp"] = "m", "a", "2026-01-01T00:00:00Z"
			s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "v"}, "metadata": meta})
			request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
			request.Resumed = true
			got := c.Apply(t.Context(), request)
			require.ErrorIs(t, got.Err, tt.err)
			require.Equal(t, tt.want, got.Action)
			require.Empty(t, got.UID)
			require.False(t, got.Fresh)
		})
	}
}

func TestInternalErrorsNameTheWebhook(t *testing.T) {
	for message, want := range map[string]string{
		`Internal error occurred: failed calling webhook "v.example.com": failed to call webhook: Post "https://x": dial tcp: connection refused`: "webhook v.example.com",
		`conversion webhook for example.com/v1, Kind=Widget failed: Post "https://x": context deadline exceeded`:                                  "conversion of example.com/v1, Kind=Widget",
		`Internal error occurred: something else`: "",
	} {
		s, c, _ := startServer(t)
		s.SetFailureText(http.StatusInternalServerError, message)
		s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusInternalServerError, false })
		by, internal := apply.Internal(c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil)).Err)
		require.True(t, internal)
		require.Equal(t, want, by)
		s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusForbidden, false })
		_, internal = apply.Internal(c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil)).Err)
		require.False(t, internal)
	}
}

// ours is the field manager of the restore whose name is r.
var ours = apply.ManagerOf("0d9f6a3e-0a5e-4f0d-8d3c-3f0c0b1f0a11")

// managedBy is the metadata of an object whose fields were set by managers.
func managedBy(managers ...string) object {
	var fields []any
	for _, m := range managers {
		fields = append(fields, object{"manager": m, "operation": "Update"})
	}
	return object{"managedFields": fields}
}

// A label and an age count for nothing: controllers copy labels of an object to those that they
// make of it, during the restore. Such a copy, of other content, counted as created after a
// takeover, and what the backup has was dropped unsaid.
func TestOnlyTheFieldManagerShowsWhoseAnObjectIs(t *testing.T) {
	labelled := object{"labels": object{"velero.io/restore-name": "r"}, "creationTimestamp": "2099-01-01T00:00:00Z"}
	for name, tt := range map[string]struct {
		meta object
		want apply.Action
	}{
		"this restore created it": {managedBy("someone", string(ours)), apply.Created},
		"a copied label":          {labelled, apply.Failed},
		"another restore":         {managedBy(string(apply.ManagerOf("other"))), apply.Failed},
		"this restore changed it": {managedBy("someone", string(ours)+"-existing"), apply.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			live := object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "w"}, "metadata": tt.meta}
			kubetest.Meta(live)["name"], kubetest.Meta(live)["namespace"] = "m", "a"
			s.Put(mapPath, live)
			request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
			request.Resumed = true
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
		})
	}
}

// Every request that creates or changes an object names the restore; requests that change an
// existing object use another field manager than creations, which a successor without records
// relies on.
func TestEveryWriteCarriesAFieldManager(t *testing.T) {
	require.LessOrEqual(t, len(ours)+len("-existing"), 128, "the API server refuses longer ones")
	s, c, _ := startServer(t)
	request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	created := c.Apply(t.Context(), request)
	require.NoError(t, created.Err)
	_, err := c.Patch(t.Context(), request.Target, object{"data": object{"more": "x"}})
	require.NoError(t, err)
	require.Equal(t, []string{string(ours)}, s.Managers(mapPath))
	for name, live := range map[string]object{"update": {"k": "w"}, "label": {"k": "v"}} {
		s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": live, "metadata": object{"name": "m", "namespace": "a"}})
		request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
		request.Update = true
		require.NoError(t, c.Apply(t.Context(), request).Err)
		require.Equal(t, []string{string(ours) + "-existing"}, s.Managers(mapPath), name)
	}
	s.Put(accountPath, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "m", "namespace": "a"}})
	account := storedRequest("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "pull"}}})
	require.Equal(t, apply.Updated, c.Apply(t.Context(), account).Action)
	require.Equal(t, []string{string(ours) + "-existing"}, s.Managers(accountPath))
}
