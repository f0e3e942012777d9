package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Quotas, admission and validation refuse a creation before the name is looked at: with a full quota each
// object of a restore over itself was an error.
func TestARefusedCreationIsNoProofOfAbsence(t *testing.T) {
	same, other := object{"data": object{"k": "v"}}, object{"data": object{"k": "w"}}
	for name, tt := range map[string]struct {
		live            object
		meta            object
		update, resumed bool
		want            apply.Action
	}{
		"absent":                    {want: apply.Failed},
		"equal":                     {live: same, want: apply.Skipped},
		"different":                 {live: other, want: apply.Failed},
		"different, policy update":  {live: other, update: true, want: apply.Updated},
		"made by this restore":      {live: other, meta: managedBy(string(ours)), resumed: true, want: apply.Created},
		"deleted at this very time": {live: same, meta: object{"deletionTimestamp": "2026-01-01T00:00:00Z"}, want: apply.Failed},
	} {
		for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError} {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				s, c, _ := startServer(t)
				if tt.live != nil {
					live := object{"apiVersion": "v1", "kind": "ConfigMap", "data": tt.live["data"], "metadata": object{"name": "m", "namespace": "a"}}
					for k, v := range tt.meta {
						kubetest.Meta(live)[k] = v
					}
					s.Put(mapPath, live)
				}
				s.SetFailureText(status, "exceeded quota")
				s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
					if r.Method == http.MethodPost {
						return status, false
					}
					return 0, false
				})
				request := storedRequest("configmaps", "ConfigMap", same)
				request.Update, request.Resumed = tt.update, tt.resumed
				got := c.Apply(t.Context(), request)
				require.Equal(t, tt.want, got.Action, got.Warning)
				switch {
				case tt.live == nil:
					require.ErrorContains(t, got.Err, "exceeded quota")
				case tt.meta["deletionTimestamp"] != nil:
					require.ErrorIs(t, got.Err, apply.ErrTerminating)
				case tt.want == apply.Failed:
					require.NoError(t, got.Err)
					require.Contains(t, got.Warning, "exists already and differs")
				default:
					require.NoError(t, got.Err)
					require.Empty(t, got.Warning)
				}
			})
		}
	}
}

func TestAFailureThatIsNoJudgementIsNotLookedAt(t *testing.T) {
	s, c, _ := startServer(t)
	s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusConflict, false })
	require.Error(t, c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil)).Err)
	require.Empty(t, s.Requests("GET "))
}

// What was seen in the cluster is not created for a try, and created when it has gone since.
func TestAPresentObjectIsReadFirst(t *testing.T) {
	s, c, _ := startServer(t)
	request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	request.Present = true
	require.Equal(t, apply.Created, c.Apply(t.Context(), request).Action)
	again := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	again.Present = true
	require.Equal(t, apply.Skipped, c.Apply(t.Context(), again).Action)
	require.Len(t, s.Requests("POST "), 1)
}

// A kind whose schema requires a status gets the stored one, where the API server says so.
func TestAStatusThatIsRequired(t *testing.T) {
	s, c, _ := startServer(t)
	s.SetFailureCauses(http.StatusUnprocessableEntity, metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Field: "status", Message: "Required value"})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && body["status"] == nil {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	request := storedRequest("configmaps", "ConfigMap", nil)
	require.Error(t, c.Apply(t.Context(), request).Err, "there is none")
	request.Status = object{"phase": "Ready"}
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.Equal(t, object{"phase": "Ready"}, s.Object(mapPath)["status"])
}
