package restore_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	ownerPath = "/api/v1/namespaces/a/configmaps/owner"
	childPath = "/api/v1/namespaces/a/secrets/child"
)

// newFamily is an object and one that it owns, into a cluster in which the owner is being deleted.
func newFamily() *backup {
	b := &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "owner", object{"data": object{"k": "v"}})
	b.addObject("secrets", "v1", "Secret", "a", "child", nil, ownerBy("v1", "ConfigMap", "owner", false))
	return b
}

func markTerminating(s *kubetest.Server, paths ...string) {
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	for _, path := range paths {
		name := path[strings.LastIndex(path, "/")+1:]
		s.Put(path, object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "v"},
			"metadata": object{"name": name, "namespace": "a", "uid": "doomed", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
	}
}

func ownerReferencesAt(s *kubetest.Server, path string) []any {
	out, _ := kubetest.Meta(s.Object(path))["ownerReferences"].([]any)
	return out
}

// An owner that was being deleted counted as there: its children got its UID and were collected
// with it, on a restore without errors.
func TestATerminatingOwnerIsWaitedForAndReplaced(t *testing.T) {
	s := kubetest.Start(t)
	b := newFamily()
	markTerminating(s, ownerPath)
	var reads atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet && r.URL.Path == ownerPath && reads.Add(1) == 2 {
			s.Delete(ownerPath)
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"a/owner(created)"}, f.list["v1/ConfigMap"])
	require.Len(t, ownerReferencesAt(s, childPath), 1)
	require.Equal(t, s.UID(ownerPath), ownerReferencesAt(s, childPath)[0].(object)["uid"])
	require.NotEqual(t, "doomed", s.UID(ownerPath))
}

// Its children are restored without the reference, which is reported.
func TestAnOwnerThatDoesNotGoAwayIsAnErrorAndNoOwner(t *testing.T) {
	s := kubetest.Start(t)
	b := newFamily()
	markTerminating(s, ownerPath)
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.TerminatingTimeout = 600 * time.Millisecond })
	require.Equal(t, "configmaps a/owner: one of that name is still being deleted after 600ms", f.results.Errors.allMessages())
	require.Equal(t, "secrets a/child: owner reference to ConfigMap owner dropped: the owner was not restored", f.results.Warnings.allMessages())
	require.Equal(t, []string{"a/owner(failed)"}, f.list["v1/ConfigMap"])
	require.Equal(t, []string{"a/child(created)"}, f.list["v1/Secret"])
	require.Empty(t, ownerReferencesAt(s, childPath))
}

// Objects that wait hold no place: more of them than there ever are places do not keep others from
// being restored, which is what ends the wait here.
func TestWaitingObjectsHoldNoPlace(t *testing.T) {
	const many = 300
	for name, tt := range map[string]struct{ terminating, refused bool }{
		"terminating objects":            {terminating: true},
		"a webhook that does not answer": {refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			var paths []string
			for i := range many {
				name := fmt.Sprintf("c%03d", i)
				b.addObject("configmaps", "v1", "ConfigMap", "a", name, nil)
				paths = append(paths, "/api/v1/namespaces/a/configmaps/"+name)
			}
			if tt.terminating {
				markTerminating(s, paths...)
			}
			b.addObject("deployments.apps", "apps/v1", "Deployment", "b", "webhook", nil)
			refuse, over := refusingWebhook(s, "/configmaps")
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments") {
					over()
					for _, path := range paths {
						s.Delete(path)
					}
				}
				if !tt.refused {
					return 0, false
				}
				return refuse(r, body)
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) {
				c.TerminatingTimeout, c.ResourceTimeout = time.Minute, time.Minute
			})
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Len(t, f.list["v1/ConfigMap"], many)
			require.Equal(t, many+1, f.recorder.ByAction()["created"])
		})
	}
}

// refusingWebhook is a webhook for the creation of objects of a collection that cannot be reached until
// over is called.
func refusingWebhook(s *kubetest.Server, collection string) (refuse kubetest.Fault, over func()) {
	var answers atomic.Bool
	s.SetFailureText(http.StatusInternalServerError, `Internal error occurred: failed calling webhook "w.example.com": connection refused`)
	return func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, collection) && !answers.Load() {
			return http.StatusInternalServerError, false
		}
		return 0, false
	}, func() { answers.Store(true) }
}

func TestAWebhookThatNeverAnswersIsAnErrorOfEachObject(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	for i := range 5 {
		b.addObject("configmaps", "v1", "ConfigMap", "a", fmt.Sprint("c", i), nil)
	}
	refuse, _ := refusingWebhook(s, "/configmaps")
	s.Fail(refuse)
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.ResourceTimeout = 2 * time.Second })
	require.Equal(t, 5, f.recorder.ByAction()["failed"])
	require.Equal(t, 5, f.recorder.Counts().Errors)
	require.Contains(t, f.results.Errors.allMessages(), `failed calling webhook "w.example.com": connection refused (tried for 2s)`)
	require.LessOrEqual(t, len(s.Requests("POST /api/v1/namespaces/a/configmaps")), 5+5, "one of them at a time is tried again")
}

// Namespaces and definitions were lost, with all that belongs to them, when a webhook did not
// answer at the first request.
func TestNamespacesAndDefinitionsWaitForWebhooks(t *testing.T) {
	for _, collection := range []string{"/namespaces", "/customresourcedefinitions"} {
		t.Run(collection, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			addDefinition(b)
			b.addObject("namespaces", "v1", "Namespace", "", "a", nil)
			b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "w", nil)
			b.addObject("configmaps", "v1", "ConfigMap", "bare", "c", nil)
			var refused atomic.Int64
			s.SetFailureText(http.StatusInternalServerError, `failed calling webhook "w.example.com": no endpoints available`)
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, collection) && refused.Add(1) <= 3 {
					return http.StatusInternalServerError, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, 4, f.recorder.ByAction()["created"])
		})
	}
}

// What an object has been through is not repeated when its creation is: actions may have effects
// elsewhere.
func TestActionsAreNotRepeatedWithTheCreation(t *testing.T) {
	s := kubetest.Start(t)
	b, items := newWaitingPair()
	x := additionalAction("a.io/x", items)
	var refused atomic.Int64
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") && refused.Add(1) <= 2 {
			return http.StatusInternalServerError, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, 2, f.recorder.ByAction()["created"])
	require.Equal(t, 1, x.timesCalled("ConfigMap a/c"))
	require.EqualValues(t, 3, refused.Load())
}

// A volume is made once, however often the creation of its object is repeated.
func TestNoVolumeIsMadeAgainForACreationThatIsRepeated(t *testing.T) {
	s, c := kubetest.Start(t), &cloud{}
	var refused atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && r.URL.Path == manyVolumes && refused.Add(1) <= 2 {
			return http.StatusInternalServerError, false
		}
		return 0, false
	})
	requireRecreated(t, s, c, runRestore(t, s, newSnapshotBackup(), velerov1.RestoreSpec{}, useCloud(c)))
	require.EqualValues(t, 3, refused.Load())
}

// A server that fails after it has stored an object (a conversion webhook that breaks at the
// answer) left an object that counted as one from before the restore: skipped, and without the
// owner references that it was owed.
func TestWhatWasStoredDespiteAnErrorIsOurs(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(1)
	var failed atomic.Bool
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if isCreate(r, "secrets") && !failed.Swap(true) {
			kubetest.Meta(body)["managedFields"] = []any{object{"manager": r.URL.Query().Get("fieldManager"), "operation": "Update"}}
			s.Put(secretsPath+"/s0", body)
			return http.StatusInternalServerError, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"a/s0(created)"}, f.list["v1/Secret"])
	require.Len(t, ownersAt(s, secretsPath+"/s0"), 1)
	require.Equal(t, s.UID(widgetPath), ownersAt(s, secretsPath+"/s0")[0].(object)["uid"])
}

// The same namespace was left without the owner references of the backup, and counted as one that
// had been there.
func TestANamespaceStoredDespiteAnErrorIsOurs(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("namespaces", "v1", "Namespace", "", "n", nil)
	var failed atomic.Bool
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if isCreate(r, "namespaces") && !failed.Swap(true) {
			kubetest.Meta(body)["managedFields"] = []any{object{"manager": r.URL.Query().Get("fieldManager"), "operation": "Update"}}
			s.Put("/api/v1/namespaces/n", body)
			return http.StatusInternalServerError, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"n(created)"}, f.list["v1/Namespace"])
}

// An object that was to wait, while the work directory took nothing more, had its messages twice,
// and its errors were counted twice.
func TestAnObjectThatCannotBeKeptWhileItWaitsIsOneError(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", object{"data": object{"k": strings.Repeat("v", 9<<20)}})
	refuse, _ := refusingWebhook(s, "/configmaps")
	s.Fail(refuse)
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.Dir = t.TempDir() + "/gone" },
		withActions(t, changingAction("example.com/any", action.Selector{}, func(*unstructured.Unstructured, map[string]any) {})))
	require.Contains(t, f.results.Errors.allMessages(), "keep the object while it waits")
	require.Equal(t, 1, f.recorder.Counts().Errors)
}
