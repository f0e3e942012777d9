package restore_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const servicePath = "/apis/apiregistration.k8s.io/v1/apiservices/v1.served.org"

// newServedBackup is a backup of an API that is served by a workload of the backup.
func newServedBackup(t *testing.T) (*kubetest.Server, *backup) {
	t.Helper()
	s, b := kubetest.Start(t), &backup{}
	s.Serve("apiregistration.k8s.io/v1", "apiservices", "APIService", false)
	b.addObject("deployments.apps", "apps/v1", "Deployment", "api", "server", nil)
	b.addObject("apiservices.apiregistration.k8s.io", "apiregistration.k8s.io/v1", "APIService", "", "v1.served.org",
		object{"spec": object{"group": "served.org", "version": "v1", "service": object{"namespace": "api", "name": "server"}}})
	for _, name := range []string{"one", "two", "three"} {
		b.addObject("things.served.org", "served.org/v1", "Thing", "a", name, nil)
	}
	return s, b
}

// answerFrom lets the API answer from the n-th read of its APIService on.
func answerFrom(s *kubetest.Server, n int64) {
	var looks atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method != http.MethodGet || r.URL.Path != servicePath {
			return 0, false
		}
		condition := object{"type": "Available", "status": "False", "message": "no endpoints"}
		if looks.Add(1) >= n {
			condition["status"] = "True"
			s.Serve("served.org/v1", "things", "Thing", true)
		}
		s.Change(servicePath, func(service map[string]any) { service["status"] = object{"conditions": []any{condition}} })
		return 0, false
	})
}

// Objects of an API that a workload of the backup serves were errors, because nothing was behind it
// yet: "the cluster does not serve things.served.org".
func TestObjectsWaitForTheirAPIService(t *testing.T) {
	s, b := newServedBackup(t)
	answerFrom(s, 4)
	x := additionalAction("a.io/x", map[string][]action.Item{})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x))
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Equal(t, []string{"a/one(created)", "a/three(created)", "a/two(created)"}, f.list["served.org/v1/Thing"])
	require.Equal(t, 1, x.timesCalled("Thing.served.org a/one"))
	require.Len(t, s.Requests("POST /apis/served.org/v1/namespaces/a/things"), 3, "nothing is sent before")
}

func TestAnAPIServiceThatNeverAnswersIsAnErrorOfItsObjects(t *testing.T) {
	s, b := newServedBackup(t)
	answerFrom(s, 1<<40)
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.ResourceTimeout = time.Second })
	require.Equal(t, 3, f.recorder.ByAction()["failed"])
	require.Equal(t, 3, strings.Count(f.results.Errors.allMessages(), `APIService "v1.served.org" does not serve it after 1s: no endpoints`))
}

// An APIService that cannot be restored is not waited for: another one may serve the group.
func TestAnAPIServiceThatFailedIsNotWaitedFor(t *testing.T) {
	s, b := newServedBackup(t)
	s.Serve("served.org/v1", "things", "Thing", true)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/apiservices") {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Len(t, f.list["served.org/v1/Thing"], 3)
}
