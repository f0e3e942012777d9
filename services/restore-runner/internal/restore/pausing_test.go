package restore_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// newPausableBackup is a backup of a Widget, which its operator lets be paused, with some Secrets.
func newPausableBackup(secrets int) *backup {
	b := newWidgetBackup(secrets)
	b.pauses = plan.PauseRules{{Group: "example.com", Kind: "Widget", Field: "spec.paused", Value: true}}
	return b
}

// The resource of an operator that can be paused comes first, then all that it owns, and last its
// mark as in the backup: dependants came before it, without the reference, whether it could be
// paused or not.
func TestAPausedOwnerComesFirstAndIsResumedAtTheEnd(t *testing.T) {
	s, b := kubetest.Start(t), newPausableBackup(3)
	var mu sync.Mutex
	var created, resumed, last any
	unowned, patches := 0, 0
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case isCreate(r, "widgets"):
			created = body["spec"]
		case isCreate(r, "secrets") && kubetest.Meta(body)["ownerReferences"] == nil:
			unowned++
		case r.Method == http.MethodPatch && r.URL.Path == widgetPath:
			patches++
			resumed, last = s.Object(widgetPath)["spec"], s.Object(secretsPath + "/s2")["data"]
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, object{"size": 1.0, "paused": true}, created)
	require.Zero(t, unowned)
	require.Equal(t, created, resumed, "it was paused until then")
	require.NotNil(t, last, "everything is there before the operator acts")
	posts := s.Requests("POST ")
	require.Less(t, slices.IndexFunc(posts, func(p string) bool { return strings.HasSuffix(p, "/widgets") }),
		slices.IndexFunc(posts, func(p string) bool { return strings.HasSuffix(p, "/secrets") }))
	require.Empty(t, s.Requests("PATCH "+secretsPath), "they were created with their reference")
	require.Equal(t, 1, patches)
	require.Equal(t, object{"size": 1.0}, s.Object(widgetPath)["spec"], "there was no mark in the backup")
	require.Empty(t, f.recorder.Paused())
}

// What was paused in the backup stays paused.
func TestAnOwnerThatIsPausedInTheBackupStaysSo(t *testing.T) {
	s, b := kubetest.Start(t), newPausableBackup(1)
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "off", object{"spec": object{"paused": true}})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, object{"paused": true}, s.Object("/apis/example.com/v1/namespaces/a/widgets/off")["spec"])
}

// A runner that dies after the creation leaves a paused object; how its mark was is nowhere but in
// the records.
func TestAnOwnerIsDurablyRecordedBeforeItIsCreatedPaused(t *testing.T) {
	s, b := kubetest.Start(t), newPausableBackup(1)
	b.records = t.TempDir()
	known := false
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if isCreate(r, "widgets") {
			known = strings.Contains(storedRecords(t, b.records), `"back":{"spec":{"paused":null}}`)
		}
		return 0, false
	})
	runRestore(t, s, b, velerov1.RestoreSpec{})
	require.True(t, known)
}

// storedRecords is the text of all records in a directory.
func storedRecords(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	var all strings.Builder
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		zip, err := gzip.NewReader(f)
		require.NoError(t, err)
		_, err = io.Copy(&all, zip)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return all.String()
}

// The operator of a live resource runs, and the resource is the user's: it is neither paused nor
// resumed.
func TestALiveOwnerIsNotPaused(t *testing.T) {
	for name, policy := range map[string]velerov1.PolicyType{"leave": "", "update": velerov1.PolicyTypeUpdate} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newPausableBackup(1)
			s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
			s.Put(widgetPath, object{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": object{"name": "w", "namespace": "a"}, "spec": object{"size": 1.0}})
			f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: policy})
			require.Empty(t, f.results.Warnings.allMessages(), "it is as in the backup")
			require.Equal(t, object{"size": 1.0}, s.Object(widgetPath)["spec"])
			require.Len(t, ownersAt(s, secretsPath+"/s0"), 1)
		})
	}
}

// What cannot be resumed stays paused, which the user has to know.
func TestAnOwnerThatCannotBeResumedIsAnError(t *testing.T) {
	s, b := kubetest.Start(t), newPausableBackup(1)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && r.URL.Path == widgetPath {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Contains(t, f.results.Errors.allMessages(), "widgets.example.com a/w is still paused")
	require.Len(t, f.recorder.Paused(), 1, "another attempt may resume it")
}

// Another attempt is no other error.
func TestWhatCouldNotBeResumedIsTriedAgain(t *testing.T) {
	for name, status := range map[string]int{"refused again": http.StatusForbidden, "allowed now": 0} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newPausableBackup(1)
			first := true
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method != http.MethodPatch || r.URL.Path != widgetPath {
					return 0, false
				}
				if first {
					first = false
					return http.StatusForbidden, false
				}
				return status, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Len(t, f.recorder.Paused(), 1)
			objects := pausing.Objects{UID: restoreUID, Recorder: f.recorder, REST: s.Config(), Clock: clock.RealClock{}}
			require.NoError(t, objects.Resume(t.Context()))
			require.Equal(t, 1, f.recorder.Counts().Errors)
			require.Equal(t, status == 0, len(f.recorder.Paused()) == 0)
		})
	}
}

// An object that another client deleted and created anew meanwhile is left alone.
func TestAnObjectOfSomebodyElseIsNotResumed(t *testing.T) {
	for name, change := range map[string]func(s *kubetest.Server){
		"gone": func(s *kubetest.Server) { s.Delete(widgetPath) },
		"made again": func(s *kubetest.Server) {
			s.Put(widgetPath, object{"metadata": object{"name": "w"}, "spec": object{"paused": true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), newPausableBackup(1)
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPatch && r.URL.Path == widgetPath {
					change(s)
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.recorder.Paused())
			if live := s.Object(widgetPath); live != nil {
				require.Equal(t, object{"paused": true}, live["spec"])
			}
		})
	}
}

// While a CloudNativePG Cluster is paused its operator makes no Pods and adopts no claims: the
// stored ones come back, with their reference.
func TestWhatAPausedOwnerWouldMakeIsRestored(t *testing.T) {
	for name, pauses := range map[string]plan.PauseRules{
		"paused": {{Group: "postgresql.cnpg.io", Kind: "Cluster", Annotation: "cnpg.io/reconciliationLoop", Value: "disabled"}}, "not paused": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{pauses: pauses}
			s.Serve("postgresql.cnpg.io/v1", "clusters", "Cluster", true)
			b.addObject("clusters.postgresql.cnpg.io", "postgresql.cnpg.io/v1", "Cluster", "a", "db", nil)
			owner := ownerBy("postgresql.cnpg.io/v1", "Cluster", "db", true)
			b.addObject("pods", "v1", "Pod", "a", "db-1", nil, owner)
			b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "db-1", nil, owner)
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			want, refs := "a/db-1(created)", 1
			if pauses == nil {
				want, refs = "a/db-1(skipped)", 0
			}
			require.Equal(t, []string{want}, f.list["v1/Pod"])
			require.Len(t, ownersAt(s, "/api/v1/namespaces/a/persistentvolumeclaims/db-1"), refs)
			annotations, _ := kubetest.Meta(s.Object("/apis/postgresql.cnpg.io/v1/namespaces/a/clusters/db"))["annotations"].(object)
			require.NotContains(t, annotations, "cnpg.io/reconciliationLoop")
		})
	}
}
