package restore_test

import (
	"context"
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

// onceShown calls then once a restore shows that it waits with that text.
func onceShown(t *testing.T, text string, then func()) func(*restore.Config) {
	t.Helper()
	return func(c *restore.Config) {
		ctx, recorder := t.Context(), c.Recorder
		done := make(chan struct{})
		t.Cleanup(func() { <-done })
		go func() {
			defer close(done)
			for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				for _, w := range recorder.Waits(time.Now()) {
					if strings.Contains(w.Name()+": "+w.Reason, text) {
						then()
						return
					}
				}
			}
		}()
	}
}

// A restore that waits shows for what. The objects here wait until that was read.
func TestARestoreShowsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for text, prepare := range map[string]func(t *testing.T, s *kubetest.Server, b *backup) (over func(), change []func(*restore.Config)){
		"configmaps a/owner: waits until one of that name, which is being deleted, is gone": func(_ *testing.T, s *kubetest.Server, b *backup) (func(), []func(*restore.Config)) {
			*b = *newFamily()
			markTerminating(s, ownerPath)
			return func() { s.Delete(ownerPath) }, nil
		},
		"namespace bare: waits until one of that name, which is being deleted, is gone": func(_ *testing.T, s *kubetest.Server, b *backup) (func(), []func(*restore.Config)) {
			b.addObject("configmaps", "v1", "ConfigMap", "bare", "c", nil)
			s.Put("/api/v1/namespaces/bare", object{"metadata": object{"name": "bare", "uid": "doomed", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
			return func() { s.Delete("/api/v1/namespaces/bare") }, nil
		},
		`and 1 more objects: waits for webhook w.example.com: Internal error occurred: failed calling webhook "w.example.com"`: func(_ *testing.T, s *kubetest.Server, b *backup) (func(), []func(*restore.Config)) {
			b.addObject("configmaps", "v1", "ConfigMap", "a", "c0", nil)
			b.addObject("configmaps", "v1", "ConfigMap", "a", "c1", nil)
			refuse, over := refusingWebhook(s, "/configmaps")
			s.Fail(refuse)
			return over, nil
		},
		"customresourcedefinitions.apiextensions.k8s.io widgets.example.com: waits until the API server has established it": func(_ *testing.T, s *kubetest.Server, b *backup) (func(), []func(*restore.Config)) {
			addDefinition(b)
			var over, made atomic.Bool
			s.SetFailureText(http.StatusServiceUnavailable, "not yet")
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				made.CompareAndSwap(false, r.Method == http.MethodPost)
				if r.Method == http.MethodGet && made.Load() && !over.Load() && strings.HasSuffix(r.URL.Path, "/widgets.example.com") {
					return http.StatusServiceUnavailable, false
				}
				return 0, false
			})
			return func() { over.Store(true) }, nil
		},
		"configmaps a/c: waits until action a.io/wait reports that its additional items are ready": func(t *testing.T, _ *kubetest.Server, b *backup) (func(), []func(*restore.Config)) {
			b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
			var over atomic.Bool
			items := map[string][]action.Item{"ConfigMap a/c": {}}
			w := waitingAction(time.Minute, items, func(context.Context, []action.Item) (bool, error) { return over.Load(), nil })
			return func() { over.Store(true) }, []func(*restore.Config){withActions(t, w)}
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, b := kubetest.Start(t), &backup{}
			over, change := prepare(t, s, b)
			var shown atomic.Bool
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, append(change, func(c *restore.Config) {
				c.TerminatingTimeout, c.ResourceTimeout = time.Minute, time.Minute
			}, onceShown(t, text, func() { shown.Store(true); over() }))...)
			require.True(t, shown.Load())
			require.Empty(t, f.results.Errors.allMessages())
			require.Empty(t, f.recorder.Waits(time.Now()), "it waits no more")
		})
	}
}
