package apply_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

func TestMain(m *testing.M) {
	// client-go shares its idle connections in the process; they belong to no client of ours.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// watcher keeps what the client reported about the server.
type watcher struct {
	answers, throttled atomic.Int64
}

func (w *watcher) Observe(_ time.Duration, throttled bool) {
	w.answers.Add(1)
	if throttled {
		w.throttled.Add(1)
	}
}

const (
	mapPath     = "/api/v1/namespaces/a/configmaps/m"
	servicePath = "/api/v1/namespaces/a/services/m"
	accountPath = "/api/v1/namespaces/a/serviceaccounts/m"
)

type object = map[string]any

func startServer(t *testing.T) (*kubetest.Server, *apply.Client, *watcher) {
	t.Helper()
	s := kubetest.Start(t)
	s.Put("/api/v1/namespaces/a", object{})
	w := &watcher{}
	c, err := apply.NewClient(s.Config(), ours, w, clock.RealClock{}, nil)
	require.NoError(t, err)
	return s, c, w
}

// storedRequest is an object as reset left it, on its way into namespace a.
func storedRequest(resource, kind string, fields object) apply.Request {
	obj := object{"apiVersion": "v1", "kind": kind, "metadata": object{"name": "m", "namespace": "a"}}
	for k, v := range fields {
		obj[k] = v
	}
	gr := schema.GroupResource{Resource: resource}
	resetObject(obj, gr, "a", &apply.ResetOptions{Backup: "b", Restore: "r"})
	return apply.Request{
		Target: apply.Target{GVR: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: "a", Name: "m"},
		Kind:   kind, Object: obj,
		Normalize: func(live map[string]any) { apply.NormalizeObject(live, gr, &apply.ResetOptions{}) },
	}
}

func TestCreateFirst(t *testing.T) {
	s, c, w := startServer(t)
	got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}}))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.True(t, got.Fresh)
	require.EqualValues(t, s.UID(mapPath), got.UID)
	require.Empty(t, s.Requests("GET "), "nothing is read unless there is a conflict")
	require.EqualValues(t, 1, w.answers.Load())
	require.Equal(t, "r", kubetest.Meta(s.Object(mapPath))["labels"].(object)["velero.io/restore-name"])
}

func TestExistingObjects(t *testing.T) {
	same := object{"data": object{"k": "v"}}
	other := object{"data": object{"k": "w", "more": "x"}}
	tests := map[string]struct {
		live    object
		meta    object
		update  bool
		mine    bool
		want    apply.Action
		warning string
		data    object // in the cluster afterwards
		label   any    // restore-name afterwards
	}{
		"equal":                       {live: same, want: apply.Skipped, data: same},
		"equal but for restore label": {live: same, meta: object{"labels": object{"velero.io/restore-name": "old"}}, want: apply.Skipped, data: same, label: "old"},
		"equal, policy update labels": {live: same, update: true, want: apply.Skipped, data: same, label: "r"},
		"different":                   {live: other, want: apply.Failed, warning: "could not restore, ConfigMap \"m\" exists already", data: other},
		"different, policy update":    {live: other, update: true, want: apply.Updated, data: same, label: "r"},
		"ours, after a takeover":      {live: other, mine: true, meta: managedBy(string(ours)), want: apply.Created, data: other},
		"label of ours, after a takeover": {live: other, mine: true, meta: object{"labels": object{"velero.io/restore-name": "r"}},
			want: apply.Failed, warning: "exists already", data: other, label: "r"},
		"not ours, after a takeover": {live: other, mine: true, want: apply.Failed, warning: "exists already", data: other},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			live := object{"apiVersion": "v1", "kind": "ConfigMap", "data": tt.live["data"], "metadata": object{"name": "m", "namespace": "a"}}
			for k, v := range tt.meta {
				kubetest.Meta(live)[k] = v
			}
			s.Put(mapPath, live)
			request := storedRequest("configmaps", "ConfigMap", same)
			request.Update = tt.update
			if tt.mine {
				request.Resumed = true
			}
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
			require.EqualValues(t, s.UID(mapPath), got.UID)
			if tt.warning == "" {
				require.Empty(t, got.Warning)
			} else {
				require.Contains(t, got.Warning, tt.warning)
			}
			require.Equal(t, tt.data["data"], s.Object(mapPath)["data"])
			labels, _ := kubetest.Meta(s.Object(mapPath))["labels"].(object)
			require.Equal(t, tt.label, labels["velero.io/restore-name"])
		})
	}
}

// What a killed runner created without a part of it was told by nobody.
func TestASuccessorTellsWhatIsLeftOutOfAService(t *testing.T) {
	for name, present := range map[string]bool{"creates first": false, "reads first": true} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			live := putObject(s, servicePath, "Service", object{"spec": object{"ports": []any{object{"port": 80, "nodePort": 30099}}}})
			kubetest.Meta(live)["managedFields"] = managedBy(string(ours))["managedFields"]
			s.Put(servicePath, live)
			request := storedRequest("services", "Service", nil)
			request.Object["spec"] = object{"ports": []any{object{"port": int64(80), "nodePort": int64(30080)}}}
			request.Resumed, request.Present = true, present
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, apply.Created, got.Action)
			require.True(t, got.Fresh)
			require.Contains(t, got.Warning, "nodePort 30080 of port 80 could not be kept")
		})
	}
}

func TestUpdateThatIsRefusedStillLabels(t *testing.T) {
	s, c, _ := startServer(t)
	s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": object{"k": "w"}, "metadata": object{"name": "m", "namespace": "a"}})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && body["data"] != nil {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	request.Update = true
	got := c.Apply(t.Context(), request)
	require.Equal(t, apply.Failed, got.Action)
	require.Contains(t, got.Warning, "could not be updated")
	require.NotContains(t, got.Warning, "nor be labelled")
	require.Equal(t, "r", kubetest.Meta(s.Object(mapPath))["labels"].(object)["velero.io/restore-name"])
}

func TestAccountsAreMerged(t *testing.T) {
	s, c, _ := startServer(t)
	s.Put(accountPath, object{"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": []any{object{"name": "live"}},
		"metadata": object{"name": "m", "namespace": "a", "labels": object{"both": "live"}}})
	request := storedRequest("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "stored"}, object{"name": "live"}}})
	kubetest.Meta(request.Object)["labels"].(object)["both"] = "stored"
	kubetest.Meta(request.Object)["labels"].(object)["only"] = "stored"
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Updated, got.Action, got.Warning)
	require.Equal(t, []any{object{"name": "live"}, object{"name": "stored"}}, s.Object(accountPath)["imagePullSecrets"])
	labels := kubetest.Meta(s.Object(accountPath))["labels"].(object)
	require.Equal(t, "live", labels["both"])
	require.Equal(t, "stored", labels["only"])

	again := storedRequest("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "stored"}}})
	require.Equal(t, apply.Skipped, c.Apply(t.Context(), again).Action)
}

func TestOverloadIsWaitedOut(t *testing.T) {
	s, c, w := startServer(t)
	var asked atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if n := asked.Add(1); n <= 3 {
			return http.StatusTooManyRequests, false
		}
		return 0, false
	})
	got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.EqualValues(t, 3, w.throttled.Load())
}

// A Pod that is deleted at once loses its token before its process ends: each object of that time was
// an error of the restore.
func TestARefusedTokenIsNoErrorOfTheObject(t *testing.T) {
	s, c, w := startServer(t)
	var asked atomic.Int64
	s.Fail(func(*http.Request, map[string]any) (int, bool) {
		if asked.Add(1) <= 2 {
			return http.StatusUnauthorized, false
		}
		return 0, false
	})
	got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.Zero(t, w.throttled.Load())
}

func TestLostAnswerCountsAsCreated(t *testing.T) {
	s, c, _ := startServer(t)
	var dropped sync.Once
	s.Fail(func(*http.Request, map[string]any) (status int, drop bool) {
		dropped.Do(func() { drop = true })
		return 0, drop
	})
	got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}}))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.True(t, got.Fresh)
	require.Len(t, s.Requests("POST "), 2)
}

// What an earlier holder did to an object that was there before shows in the cluster as if the
// object were its own.
func TestIntentsTellUpdatedFromCreated(t *testing.T) {
	same, other := object{"k": "v"}, object{"k": "w"}
	for name, tt := range map[string]struct {
		live     object
		intended apply.Intent
		want     apply.Action
		intents  []apply.Intent
	}{
		"not touched yet":           {other, "", apply.Updated, []apply.Intent{apply.IntentUpdate}},
		"about to be updated":       {other, apply.IntentUpdate, apply.Updated, []apply.Intent{apply.IntentUpdate}},
		"updated":                   {same, apply.IntentUpdate, apply.Updated, nil},
		"unchanged":                 {same, "", apply.Skipped, []apply.Intent{apply.IntentLabel}},
		"unchanged and labelled":    {same, apply.IntentLabel, apply.Skipped, []apply.Intent{apply.IntentLabel}},
		"labelled, changed by then": {other, apply.IntentLabel, apply.Updated, []apply.Intent{apply.IntentUpdate}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			meta := object{"name": "m", "namespace": "a"}
			if tt.intended != "" {
				meta["labels"] = object{"velero.io/restore-name": "r"}
			}
			s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": tt.live, "metadata": meta})
			request := storedRequest("configmaps", "ConfigMap", object{"data": same})
			request.Update, request.Resumed, request.Intended = true, true, tt.intended
			var intents []apply.Intent
			request.Intend = func(_ context.Context, i apply.Intent) error {
				require.Empty(t, s.Requests("PATCH "), "before anything is done")
				intents = append(intents, i)
				return nil
			}
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
			require.Equal(t, tt.intents, intents)
			require.Equal(t, same, s.Object(mapPath)["data"])
		})
	}
}

func TestNothingIsChangedWithoutTheClaim(t *testing.T) {
	s := kubetest.Start(t)
	s.Put("/api/v1/namespaces/a", object{})
	lost := errors.New("lost")
	c, err := apply.NewClient(s.Config(), ours, &watcher{}, clock.RealClock{}, func(context.Context) error { return lost })
	require.NoError(t, err)
	require.ErrorIs(t, c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", object{})).Err, lost)
	target := storedRequest("configmaps", "ConfigMap", object{}).Target
	_, err = c.Patch(t.Context(), target, object{})
	require.ErrorIs(t, err, lost)
	require.Empty(t, s.Requests("P"))
	_, err = c.Get(t.Context(), target)
	require.True(t, apierrors.IsNotFound(err), "reading is harmless")
}

// Admission may have changed the object between the creation and its lost answer.
func TestLostAnswerCountsAsCreatedWhatWasChangedOnTheWay(t *testing.T) {
	s, c, _ := startServer(t)
	var dropped sync.Once
	s.Fail(func(r *http.Request, _ map[string]any) (status int, drop bool) {
		dropped.Do(func() { drop = true })
		if r.Method == http.MethodGet {
			s.Change(mapPath, func(stored map[string]any) { stored["data"] = object{"k": "v", "injected": "x"} })
		}
		return 0, drop
	})
	request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action, got.Warning)
	require.True(t, got.Fresh)
}

// What a Service was created without was told only where the answer of its creation came.
func TestALostAnswerKeepsWhatAnObjectIsCreatedWithout(t *testing.T) {
	s, c, _ := startServer(t)
	s.SetFailureCauses(http.StatusUnprocessableEntity, metav1.StatusCause{Field: "spec.ports[0].nodePort", Message: "provided port is already allocated"})
	var posts atomic.Int32
	s.Fail(func(r *http.Request, _ map[string]any) (status int, drop bool) {
		if r.Method != http.MethodPost {
			return 0, false
		}
		switch posts.Add(1) {
		case 1:
			return http.StatusUnprocessableEntity, false
		case 2:
			return 0, true
		}
		return 0, false
	})
	request := storedRequest("services", "Service", nil)
	request.Object["spec"] = object{"ports": []any{object{"port": int64(80), "nodePort": int64(30080)}}}
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.EqualValues(t, 3, posts.Load())
	require.Contains(t, got.Warning, "nodePort 30080 of port 80 could not be kept")
}

func TestVanishedObjectIsCreatedAfterAll(t *testing.T) {
	s, c, _ := startServer(t)
	s.Put(mapPath, object{})
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet {
			s.Delete(mapPath)
		}
		return 0, false
	})
	got := c.Apply(t.Context(), storedRequest("configmaps", "ConfigMap", nil))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
}

func TestRefusals(t *testing.T) {
	s, c, _ := startServer(t)
	request := storedRequest("configmaps", "ConfigMap", nil)
	request.Namespace = "absent"
	got := c.Apply(t.Context(), request)
	require.Equal(t, apply.Failed, got.Action)
	require.ErrorContains(t, got.Err, "absent")

	s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusUnprocessableEntity, false })
	got = c.Apply(t.Context(), storedRequest("services", "Service", nil))
	require.ErrorContains(t, got.Err, "asked to fail")
	require.Nil(t, s.Object(servicePath))
}
