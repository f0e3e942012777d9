package restore_test

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const endpointsPath = "/api/v1/namespaces/a/endpoints"

// serveEndpoints lets the API server have the kinds of this file.
func serveEndpoints(s *kubetest.Server) {
	s.Serve("v1", "endpoints", "Endpoints", true)
	s.Serve("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true)
}

func addEndpoints(b *backup, name string, selector object) {
	b.addObject("services", "v1", "Service", "a", name, object{"spec": object{"selector": selector}})
	b.addObject("endpoints", "v1", "Endpoints", "a", name, object{"subsets": []any{object{"addresses": []any{object{"ip": "192.0.2.10"}}}}})
}

// stepClock lets the time of a clock go by as fast as anybody waits for it.
func stepClock(t *testing.T, c *clocktesting.FakeClock) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if c.HasWaiters() {
					c.Step(250 * time.Millisecond)
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// The endpoints controller, which works off the deletion of the namespace, removed a third of the
// Endpoints of Services without a selector, and nobody noticed.
func TestEndpointsThatAControllerRemovesAreMadeAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		times int // how often they are removed
		warns bool
	}{"never": {}, "once": {times: 1}, "twice": {times: 2}, "always": {times: 1 << 20, warns: true}} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			serveEndpoints(s)
			addEndpoints(b, "db", nil)
			removed := 0
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodGet && r.URL.Path == endpointsPath && removed < tt.times && s.Object(endpointsPath+"/db") != nil {
					removed++
					s.Delete(endpointsPath + "/db")
				}
				return 0, false
			})
			clk := clocktesting.NewFakeClock(time.Now())
			stepClock(t, clk)
			began := clk.Now()
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{}, withActions(t, changingAction("example.com/any", action.Selector{}, func(u *unstructured.Unstructured, _ map[string]any) {
				u.SetLabels(map[string]string{"changed": "by-an-action"})
			})))
			require.GreaterOrEqual(t, clk.Since(began), 2*time.Second, "a controller has time to remove them")
			require.Equal(t, []string{"a/db(created)"}, f.list["v1/Endpoints"])
			if tt.warns {
				require.Contains(t, f.results.Warnings.allMessages(), "endpoints a/db: a controller removed it after its creation, and it is not there again")
				require.Equal(t, 6, removed)
				return
			}
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, tt.times, removed)
			require.Equal(t, "by-an-action", kubetest.Meta(s.Object(endpointsPath + "/db"))["labels"].(object)["changed"])
			require.NotEmpty(t, s.Object(endpointsPath + "/db")["subsets"])
		})
	}
}

// A runner that takes over has not created them itself. After an idle holder they are removed on purpose.
func TestEndpointsOfAnEarlierHolderAreMadeAgain(t *testing.T) {
	for _, idle := range []bool{false, true} {
		s, b := kubetest.Start(t), &backup{}
		serveEndpoints(s)
		addEndpoints(b, "db", nil)
		clk := clocktesting.NewFakeClock(time.Now())
		stepClock(t, clk)
		runAt(t, clk, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) {
			require.NoError(t, restore.Run(t.Context(), *c))
			s.Delete(endpointsPath + "/db")
			c.History, c.Idle = &outcome.History{Resumed: true}, idle
		})
		if idle {
			require.Nil(t, s.Object(endpointsPath+"/db"))
			continue
		}
		require.NotEmpty(t, s.Object(endpointsPath + "/db")["subsets"])
		require.NotEmpty(t, kubetest.Meta(s.Object(endpointsPath + "/db"))["labels"].(object)["velero.io/restore-name"])
	}
}

// While hooks wait for hours users may remove Endpoints on purpose, which came back.
func TestEndpointsAreWatchedForAShortTime(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		again bool
	}{"soon, by a controller": {10 * time.Second, true}, "later, by a user": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			n, b := newNode(t), &backup{}
			serveEndpoints(n.cluster)
			addEndpoints(b, "db", nil)
			b.addPod("a", "web", nil)
			clk := clocktesting.NewFakeClock(time.Now())
			stepClock(t, clk)
			began, remove := clk.Now(), sync.OnceFunc(func() { n.cluster.Delete(endpointsPath + "/db") })
			n.look = func(path string, _ int) {
				if clk.Since(began) > tt.after {
					remove()
				}
				if clk.Since(began) > 2*time.Minute {
					n.startContainers(path, "main")
				}
			}
			f := runAt(t, clk, n.cluster, b, specOf(specHooks("", execHook("main", "one"))), n.setExec)
			require.Equal(t, []string{"a/web main one"}, n.ranCommands())
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, tt.again, n.cluster.Object(endpointsPath+"/db") != nil)
		})
	}
}

// What cannot be created again was a warning in each round.
func TestEndpointsThatAreRefusedAreOneWarning(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	serveEndpoints(s)
	addEndpoints(b, "db", nil)
	var posts atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.URL.Path == endpointsPath && r.Method == http.MethodGet {
			s.Delete(endpointsPath + "/db")
		}
		if r.URL.Path == endpointsPath && r.Method == http.MethodPost && posts.Add(1) > 1 {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	clk := clocktesting.NewFakeClock(time.Now())
	stepClock(t, clk)
	f := runAt(t, clk, s, b, velerov1.RestoreSpec{})
	require.Equal(t, 1, f.recorder.Counts().Warnings, f.results.Warnings.allMessages())
	require.Contains(t, f.results.Warnings.allMessages(), "endpoints a/db: a controller removed it after its creation, and it is not there again: ")
}

// What a controller makes of other objects is theirs: stored addresses are those of Pods that are gone, and a
// mirrored EndpointSlice beside its Endpoints would be there twice.
func TestWhatAControllerMakesOfAServiceStaysOut(t *testing.T) {
	selects := object{"app": "db"}
	for name, tt := range map[string]struct {
		stored, live object // selectors; nil without a Service
		without      []string
		endpoints    string
	}{
		"the stored Service selects":     {stored: selects, endpoints: "skipped"},
		"it does not":                    {stored: object{}, endpoints: "created"},
		"it does not, the live one does": {stored: object{}, live: selects, endpoints: "created"},
		"only a live one, which selects": {stored: object{}, live: selects, without: []string{"services"}, endpoints: "skipped"},
		"only a live one, without":       {stored: selects, live: object{}, without: []string{"services"}, endpoints: "created"},
		"none at all":                    {stored: selects, without: []string{"services"}, endpoints: "created"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			serveEndpoints(s)
			addEndpoints(b, "db", tt.stored)
			if tt.live != nil {
				s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
				s.Put("/api/v1/namespaces/a/services/db", object{"metadata": object{"name": "db", "namespace": "a"}, "spec": object{"selector": tt.live}})
			}
			clk := clocktesting.NewFakeClock(time.Now())
			stepClock(t, clk)
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{ExcludedResources: tt.without})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"a/db(" + tt.endpoints + ")"}, f.list["v1/Endpoints"])
		})
	}
}

func TestAMirroredSliceIsRestoredOnlyWithoutItsEndpoints(t *testing.T) {
	for name, tt := range map[string]struct {
		without []string
		live    bool // the cluster has Endpoints of the name
		slice   string
	}{
		"with its Endpoints":   {slice: "skipped"},
		"with live Endpoints":  {without: []string{"endpoints"}, live: true, slice: "skipped"},
		"without any of these": {without: []string{"endpoints"}, slice: "created"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			serveEndpoints(s)
			addEndpoints(b, "db", nil)
			labels := object{"kubernetes.io/service-name": "db", "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}
			b.addObject("endpointslices.discovery.k8s.io", "discovery.k8s.io/v1", "EndpointSlice", "a", "db-x1", object{"metadata": object{"labels": labels}})
			if tt.live {
				s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
				s.Put(endpointsPath+"/db", object{"metadata": object{"name": "db", "namespace": "a"}})
			}
			clk := clocktesting.NewFakeClock(time.Now())
			stepClock(t, clk)
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{ExcludedResources: tt.without})
			require.Empty(t, f.results.Warnings.allMessages())
			require.True(t, slices.Equal([]string{"a/db-x1(" + tt.slice + ")"}, f.list["discovery.k8s.io/v1/EndpointSlice"]), f.list)
			if tt.slice == "created" {
				require.NotContains(t, kubetest.Meta(s.Object("/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/db-x1"))["labels"], "endpointslice.kubernetes.io/managed-by")
			}
		})
	}
}
