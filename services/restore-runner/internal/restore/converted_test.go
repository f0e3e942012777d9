package restore_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// convertingAction makes the objects of a resource another kind, in a namespace, with a spec.
func convertingAction(resource, apiVersion, kind, namespace string, spec object) *fake {
	return changingAction("a.io/convert", action.Selector{IncludedResources: []string{resource}}, func(u *unstructured.Unstructured, _ map[string]any) {
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetNamespace(namespace)
		u.Object["spec"] = spec
	})
}

// messagesOf are the messages of a restore, of every level.
func messagesOf(t *testing.T, f *finishedRestore) string {
	t.Helper()
	var out strings.Builder
	f.EachRecord(t, func(rec *outcome.Record) {
		for _, line := range rec.Log {
			out.WriteString(line.Message + "\n")
		}
	})
	return out.String()
}

// newConverting is a cluster that serves the kinds that objects become.
func newConverting(t *testing.T) (*kubetest.Server, *backup) {
	t.Helper()
	s, b := kubetest.Start(t), &backup{}
	s.Serve("networking.k8s.io/v1", "ingresses", "Ingress", true)
	s.Serve("apps/v1", "deployments", "Deployment", true)
	s.Serve("apps/v1", "statefulsets", "StatefulSet", true)
	s.Serve("made.org/v1", "clusterwidgets", "ClusterWidget", false)
	s.Serve("made.org/v1", "widgets", "Widget", true)
	s.Serve("made.org/v2", "things", "Thing", true)
	b.addObject("secrets", "v1", "Secret", "b", "s", nil)
	return s, b
}

// An object that an action made another kind was an error, and so was one of a kind or a version that the
// cluster does not serve any more: its action was not called.
func TestAnActionMayMakeAnotherKind(t *testing.T) {
	for name, tt := range map[string]struct {
		resource, stored, kind, namespace string // of the object "x"
		apiVersion, newKind, newNamespace string
		path, entry                       string
	}{
		"another kind": {resource: "deployments.apps", stored: "apps/v1", kind: "Deployment", namespace: "a", apiVersion: "apps/v1", newKind: "StatefulSet", newNamespace: "a",
			path: "/apis/apps/v1/namespaces/z/statefulsets/x", entry: "z/x"},
		"a group that is not served": {resource: "ingresses.extensions", stored: "extensions/v1beta1", kind: "Ingress", namespace: "a", apiVersion: "networking.k8s.io/v1", newKind: "Ingress", newNamespace: "a",
			path: "/apis/networking.k8s.io/v1/namespaces/z/ingresses/x", entry: "z/x"},
		"a version that is not served": {resource: "things.made.org", stored: "made.org/v1", kind: "Thing", namespace: "a", apiVersion: "made.org/v2", newKind: "Thing", newNamespace: "a",
			path: "/apis/made.org/v2/namespaces/z/things/x", entry: "z/x"},
		"a kind without namespace": {resource: "widgets.made.org", stored: "made.org/v1", kind: "Widget", namespace: "a", apiVersion: "made.org/v1", newKind: "ClusterWidget", newNamespace: "a",
			path: "/apis/made.org/v1/clusterwidgets/x", entry: "x"},
		"a kind with a namespace": {resource: "clusterwidgets.made.org", stored: "made.org/v1", kind: "ClusterWidget", apiVersion: "made.org/v1", newKind: "Widget", newNamespace: "b",
			path: "/apis/made.org/v1/namespaces/b/widgets/x", entry: "b/x"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newConverting(t)
			b.addObject(tt.resource, tt.stored, tt.kind, tt.namespace, "x", object{"status": object{"old": "kind"},
				"metadata": object{"managedFields": []any{object{"operation": "Apply", "manager": "m", "apiVersion": tt.stored, "fieldsType": "FieldsV1"}}}})
			x := convertingAction(tt.resource, tt.apiVersion, tt.newKind, tt.newNamespace, object{"of": "new"})
			spec := velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "z"}}
			for _, want := range []string{"created", "skipped"} {
				f := runRestore(t, s, b, spec, withActions(t, x))
				require.Empty(t, f.results.Errors.allMessages())
				require.Empty(t, f.results.Warnings.allMessages())
				require.Equal(t, object{"of": "new"}, s.Object(tt.path)["spec"])
				require.Nil(t, s.Object(tt.path)["status"])
				if tt.kind != tt.newKind {
					require.Empty(t, s.Requests("PATCH "), "the stored fields are those of the stored kind")
				}
				require.Equal(t, "r", kubetest.Meta(s.Object(tt.path))["labels"].(object)["velero.io/restore-name"])
				require.Equal(t, []string{tt.entry + "(" + want + ")"}, f.list[tt.apiVersion+"/"+tt.newKind], "the second restore finds it unchanged")
				require.Contains(t, messagesOf(t, f), "restored as "+tt.newKind+" of "+tt.apiVersion+": actions made it that of a "+tt.kind+" of "+tt.stored)
			}
		})
	}
}

func TestAnActionCannotMakeEveryKind(t *testing.T) {
	for name, tt := range map[string]struct{ resource, kind, namespace, apiVersion, newKind, newNamespace, want string }{
		"not served":             {"configmaps", "ConfigMap", "a", "gone.org/v1", "Gone", "a", `made it a Gone of "gone.org/v1", and it was a ConfigMap of "v1": the cluster does not serve the new kind`},
		"volumes":                {"configmaps", "ConfigMap", "a", "v1", "PersistentVolume", "a", `made it a PersistentVolume of "v1", and it was a ConfigMap of "v1": a restore handles one`},
		"a claim":                {"persistentvolumeclaims", "PersistentVolumeClaim", "a", "v1", "ConfigMap", "a", `and it was a PersistentVolumeClaim of "v1": a restore handles one`},
		"the place of another":   {"configmaps", "ConfigMap", "b", "v1", "Secret", "b", "the place of another object of the restore, b/s"},
		"a namespace is missing": {"clusterwidgets.made.org", "ClusterWidget", "", "v1", "ConfigMap", "elsewhere", `made it a ConfigMap, which needs a namespace, and "elsewhere" is none`},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newConverting(t)
			stored := "v1"
			if tt.namespace == "" {
				stored = "made.org/v1"
			}
			b.addObject(tt.resource, stored, tt.kind, tt.namespace, "s", nil)
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, convertingAction(tt.resource, tt.apiVersion, tt.newKind, tt.newNamespace, nil)))
			require.Equal(t, 1, f.recorder.Counts().Errors)
			require.Contains(t, f.results.Errors.allMessages(), tt.want)
			require.Equal(t, []string{strings.TrimPrefix(tt.namespace+"/s(failed)", "/")}, f.list[stored+"/"+tt.kind])
		})
	}
}

// Without an action that converts it the object is the error that it was.
func TestAnActionThatConvertsNothing(t *testing.T) {
	s, b := newConverting(t)
	b.addObject("ingresses.extensions", "extensions/v1beta1", "Ingress", "a", "x", nil)
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, additionalAction("a.io/x", nil)))
	require.Contains(t, f.results.Errors.allMessages(), "the cluster does not serve ingresses.extensions")
	require.Equal(t, 1, f.recorder.Counts().Errors)
}

// What the API server gave an object of the new kind in the old cluster goes, and the accounts that it names follow
// the mapping once.
func TestTheResetsOfTheNewKindApply(t *testing.T) {
	s, b := newConverting(t)
	s.Serve("batch/v1", "jobs", "Job", true)
	s.Serve("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true)
	s.Serve("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", false)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "web", nil)
	b.addObject("rolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "RoleBinding", "a", "grant",
		object{"subjects": []any{object{"kind": "ServiceAccount", "namespace": "a", "name": "x"}}})
	labels := func(uid string) object {
		return object{"template": object{"metadata": object{"labels": object{"app": "x", "controller-uid": uid}}}}
	}
	job := convertingAction("configmaps", "batch/v1", "Job", "a", labels("old"))
	binding := changingAction("a.io/grant", action.Selector{IncludedResources: []string{"rolebindings.rbac.authorization.k8s.io"}}, func(u *unstructured.Unstructured, _ map[string]any) {
		u.SetKind("ClusterRoleBinding")
	})
	spec, change := velerov1.RestoreSpec{NamespaceMapping: map[string]string{"a": "b", "b": "a"}}, withActions(t, job, binding)
	f := runRestore(t, s, b, spec, change)
	require.Empty(t, f.results.Errors.allMessages())
	require.NotContains(t, s.Object("/apis/batch/v1/namespaces/b/jobs/web")["spec"].(object)["template"].(object)["metadata"].(object)["labels"], "controller-uid")
	subjects := s.Object("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/grant")["subjects"].([]any)
	require.Equal(t, "b", subjects[0].(object)["namespace"])

	s.Change("/apis/batch/v1/namespaces/b/jobs/web", func(job map[string]any) { job["spec"] = labels("new") })
	f = runRestore(t, s, b, spec, change)
	require.Equal(t, []string{"b/web(skipped)"}, f.list["batch/v1/Job"])
	require.Empty(t, s.Requests("PATCH "), "the live Job is compared by them too: no request asks what the API server adds")
}

// Hooks run in a Pod that an action made of something else.
func TestHooksFindAPodThatWasAnotherKind(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "db", object{"metadata": object{"annotations": object{postHook + "command": "x"}}})
	n.look = func(path string, _ int) { n.startContainers(path, "main") }
	x := convertingAction("configmaps", "v1", "Pod", "a", object{"containers": []any{object{"name": "main"}}})
	f := runRestore(t, n.cluster, b, velerov1.RestoreSpec{}, withActions(t, x), n.setExec)
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"a/db main x"}, n.ranCommands())
}

// A takeover finds the created object, and what it owns names its new kind.
func TestATakeoverFindsTheNewKind(t *testing.T) {
	for name, path := range map[string]string{"before its outcome": "/statefulsets", "after its outcome": "/configmaps"} {
		t.Run(name, func(t *testing.T) {
			s, b := newConverting(t)
			b.addObject("deployments.apps", "apps/v1", "Deployment", "a", "web", nil)
			b.addObject("configmaps", "v1", "ConfigMap", "a", "owned", nil, ownerBy("apps/v1", "Deployment", "web", false))
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, convertingAction("deployments.apps", "apps/v1", "StatefulSet", "a", object{"of": "new"})), func(config *restore.Config) {
				records := runFirstOwner(t, config, func(ctx context.Context, die func(), own *restore.Config) {
					s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
						if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, path) {
							die() // the request takes effect, without an answer
						}
						return 0, false
					})
					require.ErrorIs(t, restore.Run(ctx, *own), context.Canceled)
				})
				s.Fail(nil)
				replayRecords(t, config, records)
			})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"a/web(created)"}, f.list["apps/v1/StatefulSet"])
			owners := kubetest.Meta(s.Object("/api/v1/namespaces/a/configmaps/owned"))["ownerReferences"].([]any)
			require.Equal(t, "StatefulSet", owners[0].(object)["kind"])
			require.Equal(t, s.UID("/apis/apps/v1/namespaces/a/statefulsets/web"), owners[0].(object)["uid"])
		})
	}
}
