package restore_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const (
	widgetPath  = "/apis/example.com/v1/namespaces/a/widgets/w"
	secretsPath = "/api/v1/namespaces/a/secrets"
)

// newWidgetBackup is a backup of a custom resource with some Secrets that it owns.
func newWidgetBackup(secrets int) *backup {
	b := &backup{}
	addDefinition(b)
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "w", object{"spec": object{"size": 1.0}})
	for i := range secrets {
		owner := ownerBy("example.com/v1", "Widget", "w", true)
		owner["blockOwnerDeletion"] = true
		b.addObject("secrets", "v1", "Secret", "a", fmt.Sprint("s", i), object{"data": object{"password": "c3RvcmVk"}}, owner)
	}
	return b
}

func isCreate(r *http.Request, resource string) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+resource)
}

func ownersAt(s *kubetest.Server, path string) []any {
	meta, _ := s.Object(path)["metadata"].(object)
	refs, _ := meta["ownerReferences"].([]any)
	return refs
}

// With the owner first, an operator that makes what it does not find replaced the stored Secrets of
// live databases by new ones.
func TestAnOperatorFindsTheStoredObjects(t *testing.T) {
	s, b := startStorage(t), newWidgetBackup(5)
	s.Put("/apis/storage.k8s.io/v1/storageclasses/fast", object{"metadata": object{"name": "fast"}, "provisioner": "disk.example.com"})
	b.addObject("secrets", "v1", "Secret", "a", "unowned", object{"data": object{"password": "c3RvcmVk"}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data-db-0", object{"spec": object{"storageClassName": "fast"}})
	b.addObject("statefulsets.apps", "apps/v1", "StatefulSet", "a", "db", nil)
	s.Serve("apps/v1", "statefulsets", "StatefulSet", true)
	var mu sync.Mutex // the owners come at once
	reconciled := 0
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if isCreate(r, "widgets") || isCreate(r, "statefulsets") {
			mu.Lock()
			defer mu.Unlock()
			reconciled++
			for _, looked := range []string{secretsPath + "/s0", secretsPath + "/s4", secretsPath + "/unowned", "/api/v1/namespaces/a/persistentvolumeclaims/data-db-0"} {
				if s.Object(looked) == nil {
					s.Put(looked, object{"metadata": object{"name": "made"}, "data": object{"password": "bmV3"}})
				}
			}
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 2, reconciled)
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	for i := range 5 {
		path := fmt.Sprint(secretsPath, "/s", i)
		require.Equal(t, object{"password": "c3RvcmVk"}, s.Object(path)["data"])
		require.Equal(t, []any{object{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": s.UID(widgetPath), "controller": true, "blockOwnerDeletion": true}},
			ownersAt(s, path))
	}
	require.Empty(t, s.Requests("GET "+widgetPath), "in a namespace that the restore made there is no owner to look for")
	require.Empty(t, s.Requests("GET "+secretsPath), "nothing but the restore touched them")
}

// Each of a hundred owners that came back at once patched a hundred objects at once: ten thousand
// requests, of which some ran into their timeouts.
func TestTheObjectsOfOneOwnerArePatchedAtATime(t *testing.T) {
	const owners, owned = 8, 4
	s, b := kubetest.Start(t), &backup{}
	addDefinition(b)
	for i := range owners {
		owner := fmt.Sprint("w", i)
		b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", owner, nil)
		for j := range owned {
			b.addObject("secrets", "v1", "Secret", "a", fmt.Sprint(owner, "-", j), nil, ownerBy("example.com/v1", "Widget", owner, true))
		}
	}
	var mu sync.Mutex
	var patched []string // the owner of each object, in the order of the patches
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if name, ok := strings.CutPrefix(r.URL.Path, secretsPath+"/"); ok && r.Method == http.MethodPatch {
			mu.Lock()
			defer mu.Unlock()
			owner, _, _ := strings.Cut(name, "-")
			patched = append(patched, owner)
		}
		return 0, false
	})
	runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Len(t, patched, owners*owned)
	require.Len(t, slices.Compact(patched), owners)
}

// A live owner comes before its dependants in any order: its controller must not read them
// without their owner reference. It is read once, not once per object.
func TestDependantsOfALiveOwnerAreCreatedWithTheReference(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(8)
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	s.Put(widgetPath, object{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": object{"name": "w", "namespace": "a"}, "spec": object{"size": 2.0}})
	var mu sync.Mutex
	without := 0
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if isCreate(r, "secrets") && kubetest.Meta(body)["ownerReferences"] == nil {
			without++
		}
		return 0, false
	})
	runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Zero(t, without)
	require.Empty(t, s.Requests("PATCH "+secretsPath))
	require.Equal(t, s.UID(widgetPath), ownersAt(s, secretsPath+"/s7")[0].(object)["uid"])
	require.Len(t, s.Requests("GET "+widgetPath), 2, "one look, and one when it could not be created")
}

// The garbage collector removes a terminating owner, and with it everything that refers to it.
func TestATerminatingObjectIsNoOwner(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(1)
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	s.Put(widgetPath, object{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": object{"name": "w", "namespace": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if isCreate(r, "secrets") && kubetest.Meta(body)["ownerReferences"] != nil {
			return http.StatusTeapot, false
		}
		if isCreate(r, "widgets") {
			s.Delete(widgetPath)
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, s.UID(widgetPath), ownersAt(s, secretsPath+"/s0")[0].(object)["uid"])
}

// A merge patch of the whole list took away what controllers had added between the creation and the
// patch.
func TestReferencesOfControllersAreKept(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(1)
	other := object{"apiVersion": "example.com/v1", "kind": "Gadget", "name": "g", "uid": "theirs"}
	adds := 2
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, secretsPath) && adds > 0 {
			adds--
			s.Change(secretsPath+"/s0", func(o object) {
				meta := kubetest.Meta(o)
				meta["labels"].(object)["changed"] = fmt.Sprint(adds)
				if adds == 1 {
					meta["ownerReferences"] = []any{other}
				}
			})
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	refs := ownersAt(s, secretsPath+"/s0")
	require.Len(t, refs, 2)
	require.Equal(t, other, refs[0])
	require.Equal(t, s.UID(widgetPath), refs[1].(object)["uid"])
}

// What became of a dependant meanwhile is not an error of the restore.
func TestADependantThatCannotTakeItsReferenceIsANote(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *kubetest.Server, path string)
		want   int // references
	}{
		"gone": {func(s *kubetest.Server, path string) { s.Delete(path) }, 0},
		"another object": {func(s *kubetest.Server, path string) {
			s.Put(path, object{"metadata": object{"name": "s0"}})
		}, 0},
		"adopted already": {func(s *kubetest.Server, path string) {
			uid := s.UID(widgetPath)
			s.Change(path, func(o object) {
				kubetest.Meta(o)["ownerReferences"] = []any{object{"kind": "Widget", "name": "w", "uid": uid, "controller": true}}
			})
		}, 1},
		"another controller": {func(s *kubetest.Server, path string) {
			s.Change(path, func(o object) {
				kubetest.Meta(o)["ownerReferences"] = []any{object{"kind": "Other", "name": "o", "uid": "u", "controller": true}}
			})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newWidgetBackup(1)
			var once sync.Once
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, secretsPath) {
					once.Do(func() { tt.change(s, secretsPath+"/s0") })
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Len(t, ownersAt(s, secretsPath+"/s0"), tt.want)
		})
	}
}

// An admission webhook may insist on an owner: such an object failed, and nothing tried it again
// once the owner was there.
func TestWhatIsRefusedWithoutItsOwnerComesAfterIt(t *testing.T) {
	for _, actions := range []bool{false, true} {
		t.Run(fmt.Sprint("actions ", actions), func(t *testing.T) {
			s, b := kubetest.Start(t), newWidgetBackup(2)
			s.Serve("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false)
			b.addObject("validatingwebhookconfigurations.admissionregistration.k8s.io", "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "hook", nil)
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if isCreate(r, "secrets") && kubetest.Meta(body)["ownerReferences"] == nil {
					return http.StatusForbidden, false
				}
				return 0, false
			})
			marks := &fake{name: "example.com/marks", selector: action.Selector{IncludedResources: []string{"secrets"}},
				execute: func(o, _ *action.Object) (action.RestoreResult, error) {
					content, err := o.Content()
					content["marked"] = true
					return action.RestoreResult{Object: action.FromContent(content)}, err
				}}
			change := func(*restore.Config) {}
			if actions {
				change = withActions(t, marks)
			}
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, change)
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, s.UID(widgetPath), ownersAt(s, secretsPath+"/s1")[0].(object)["uid"])
			if actions {
				require.Equal(t, 1, marks.timesCalled("Secret a/s1"), marks.seen)
				require.Equal(t, true, s.Object(secretsPath + "/s1")["marked"])
			}
			posts := s.Requests("POST ")
			require.True(t, strings.HasSuffix(posts[len(posts)-1], "/validatingwebhookconfigurations"), posts)
			require.Equal(t, 4, len(slices.DeleteFunc(posts, func(p string) bool { return !strings.HasSuffix(p, "/secrets") })))
		})
	}
}

// An object that a dead runner made before its owner existed counts as created, and its owner
// exists by now: it was created without the reference.
func TestATakenOverObjectGetsTheReferenceThatItLacks(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(1)
	mine := []any{object{"manager": "holdfast-restore-uid", "operation": "Update"}}
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	s.Put(widgetPath, object{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": object{"name": "w", "managedFields": mine}})
	s.Put(secretsPath+"/s0", object{"metadata": object{"name": "s0", "managedFields": mine}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.UID, c.History = "uid", &outcome.History{Resumed: true} })
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"a/s0(created)"}, f.list["v1/Secret"])
	require.Len(t, ownersAt(s, secretsPath+"/s0"), 1)
}

// A CertificateRequest, Order or Workflow that comes back without its status runs once more, and
// with it what it orders.
func TestRunsAreLeftOutUnlessAskedFor(t *testing.T) {
	for _, asked := range []string{"", "workflows.argoproj.io"} {
		t.Run("asked "+asked, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Serve("argoproj.io/v1alpha1", "workflows", "Workflow", true)
			b.addObject("workflows.argoproj.io", "argoproj.io/v1alpha1", "Workflow", "a", "build", nil)
			b.addObject("pods", "v1", "Pod", "a", "step", nil, ownerBy("argoproj.io/v1alpha1", "Workflow", "build", true))
			runs, err := restoreorder.ParseRuns(asked)
			require.NoError(t, err)
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.Runs = runs })
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"a/step(skipped)"}, f.list["v1/Pod"], "it would run on without its workflow, or beside the steps of the new one")
			if asked != "" {
				require.Equal(t, []string{"a/build(created)"}, f.list["argoproj.io/v1alpha1/Workflow"])
				return
			}
			require.Equal(t, []string{"a/build(skipped)"}, f.list["argoproj.io/v1alpha1/Workflow"])
			require.Contains(t, f.results.Warnings.allMessages(), "holdfast.io/run-again")
		})
	}
}

// What is refused with its owner, too, is an error, and is not tried indefinitely.
func TestWhatIsRefusedAnywayIsAnError(t *testing.T) {
	s, b := kubetest.Start(t), newWidgetBackup(1)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if isCreate(r, "secrets") {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Contains(t, f.results.Errors.allMessages(), "secrets a/s0: ")
	require.Empty(t, f.results.Warnings.allMessages())
}

// With OwnerReferencesPermissionEnforcement the API server refuses blockOwnerDeletion to who may
// not update the owner's finalizers: the reference is worth more than the flag.
func TestWithoutTheRightToBlockOwnersTheReferenceIsWrittenAllTheSame(t *testing.T) {
	for name, live := range map[string]bool{"at creation": true, "by a patch": false} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newWidgetBackup(1)
			s.SetFailureText(http.StatusForbidden, "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on")
			if live {
				s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
				s.Put(widgetPath, object{"metadata": object{"name": "w"}})
			}
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if strings.HasPrefix(r.URL.Path, secretsPath) && strings.Contains(fmt.Sprintf("%s", body), "blockOwnerDeletion") {
					return http.StatusForbidden, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Contains(t, f.results.Warnings.allMessages(), "blockOwnerDeletion of its owner references is left out")
			require.Equal(t, []any{object{"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": s.UID(widgetPath), "controller": true}},
				ownersAt(s, secretsPath+"/s0"))
		})
	}
}

// A Job that failed was restored without its status, and ran again.
func TestJobsThatEndedOrRan(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		ended, ran  string
		suspend     any
	}{
		"default":   {nil, "skipped", "created", nil},
		"run again": {map[string]string{holdfast.AnnotationRunAgain: "jobs.batch"}, "created", "created", nil},
		"skip":      {map[string]string{holdfast.AnnotationRunningJobs: "skip"}, "skipped", "skipped", nil},
		"suspend":   {map[string]string{holdfast.AnnotationRunningJobs: "suspend"}, "skipped", "created", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Serve("batch/v1", "jobs", "Job", true)
			job := func(name string, suspend bool, status object) {
				spec := object{"parallelism": 1.0, "suspend": suspend}
				b.addObject("jobs.batch", "batch/v1", "Job", "a", name, object{"spec": spec, "status": status})
			}
			job("failed", false, object{"startTime": "t", "conditions": []any{object{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}}})
			job("ran", false, object{"startTime": "t"})
			job("live", false, object{"startTime": "t"})
			job("waits", false, object{})
			_, runs, err := restoreorder.Parse(tt.annotations)
			require.NoError(t, err)
			s.Put("/apis/batch/v1/namespaces/a/jobs/live", object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "live", "namespace": "a"},
				"spec": object{"parallelism": 1.0, "suspend": false}})
			f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate}, func(c *restore.Config) { c.Runs = runs })
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, []string{"a/failed(" + tt.ended + ")", "a/live(skipped)", "a/ran(" + tt.ran + ")", "a/waits(created)"}, f.list["batch/v1/Job"])
			if tt.ran == "created" {
				require.Equal(t, tt.suspend == true, s.Object("/apis/batch/v1/namespaces/a/jobs/ran")["spec"].(object)["suspend"])
			}
			require.Equal(t, false, s.Object("/apis/batch/v1/namespaces/a/jobs/live")["spec"].(object)["suspend"], "one that runs is not suspended")
			require.Equal(t, false, s.Object("/apis/batch/v1/namespaces/a/jobs/waits")["spec"].(object)["suspend"])
		})
	}
}
