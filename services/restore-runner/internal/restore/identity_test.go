package restore_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// One object that was brought back beside its live owner lost it, and was not collected with it any more.
func TestAnObjectKeepsItsLiveOwner(t *testing.T) {
	const path = "/api/v1/namespaces/a/services/"
	for name, tt := range map[string]struct {
		owner object // live
		kept  bool
	}{
		"the owner of the backup": {object{"name": "web", "uid": "old-web"}, true},
		"another of its name":     {object{"name": "web", "uid": "other"}, false},
		"one that is deleted":     {object{"name": "web", "uid": "old-web", "deletionTimestamp": "2020-01-01T00:00:00Z"}, false},
		"none":                    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
			if tt.owner != nil {
				s.Put("/apis/apps/v1/namespaces/a/deployments/web", object{"metadata": tt.owner})
			}
			s.Serve("v1", "services", "Service", true)
			b.addObject("deployments.apps", "apps/v1", "Deployment", "a", "web", nil)
			owner := ownerBy("apps/v1", "Deployment", "web", false)
			for _, service := range []string{"one", "two"} {
				b.addObject("services", "v1", "Service", "a", service, nil, owner)
			}
			var reads atomic.Int32
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodGet && r.URL.Path == "/apis/apps/v1/namespaces/a/deployments/web" {
					reads.Add(1)
				}
				return 0, false
			})
			spec := velerov1.RestoreSpec{IncludedResources: []string{"services"}}
			f := runRestore(t, s, b, spec)
			require.Empty(t, f.results.Errors.allMessages())
			require.LessOrEqual(t, reads.Load(), int32(2), "the owner is not looked for again for each object")
			if !tt.kept {
				require.Contains(t, f.results.Warnings.allMessages(), "owner reference to Deployment web dropped: the owner is not part of the restore")
				require.Empty(t, ownersAt(s, path+"one"))
				again := runRestore(t, s, b, spec)
				require.Empty(t, again.results.Warnings.allMessages(), "nothing is dropped from what is there")
				return
			}
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, []any{owner}, ownersAt(s, path+"one"))
		})
	}
}

// Claims that a StatefulSet made of its template had an owner of the old cluster, and were deleted at once.
func TestOwnersInTemplates(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/a/statefulsets/es"
	for name, tt := range map[string]struct {
		live string // UID of the owner that is in the cluster
		spec velerov1.RestoreSpec
		uid  string // of the reference in the template
	}{
		"unknown":           {"", velerov1.RestoreSpec{}, ""},
		"the old one":       {"old-w", velerov1.RestoreSpec{ExcludedResources: []string{"widgets.example.com"}}, "old-w"},
		"a new one":         {"new-w", velerov1.RestoreSpec{}, "new-w"},
		"another, not ours": {"new-w", velerov1.RestoreSpec{ExcludedResources: []string{"widgets.example.com"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newWidgetBackup(0)
			s.Serve("apps/v1", "statefulsets", "StatefulSet", true)
			s.Serve("example.com/v1", "widgets", "Widget", true)
			s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
			if tt.live != "" {
				s.Put(widgetPath, object{"metadata": object{"name": "w", "uid": tt.live}, "spec": object{"size": 1.0}})
			}
			claims := []any{object{"metadata": object{"name": "data", "ownerReferences": []any{ownerBy("example.com/v1", "Widget", "w", false)}}}}
			b.addObject("statefulsets.apps", "apps/v1", "StatefulSet", "a", "es", object{"spec": object{"volumeClaimTemplates": claims}},
				ownerBy("example.com/v1", "Widget", "w", true))
			f := runRestore(t, s, b, tt.spec)
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"a/es(created)"}, f.list["apps/v1/StatefulSet"])
			meta := s.Object(path)["spec"].(object)["volumeClaimTemplates"].([]any)[0].(object)["metadata"].(object)
			if tt.uid == "" {
				require.Nil(t, meta["ownerReferences"])
				require.Contains(t, f.results.Warnings.allMessages(), "owner reference to Widget w dropped: it is in a template")
			} else {
				require.Equal(t, tt.uid, meta["ownerReferences"].([]any)[0].(object)["uid"])
				require.NotContains(t, f.results.Warnings.allMessages(), "template")
			}
			tt.spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate
			again := runRestore(t, s, b, tt.spec)
			require.Equal(t, []string{"a/es(skipped)"}, again.list["apps/v1/StatefulSet"], "what the restore changes is no difference")
		})
	}
}
