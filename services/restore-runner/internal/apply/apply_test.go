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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apitest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop")) // client-go keeps idle connections per process
}

// watcher remembers what the client told about the server.
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

func start(t *testing.T) (*apitest.Server, *apply.Client, *watcher) {
	t.Helper()
	s := apitest.Start(t)
	s.Put("/api/v1/namespaces/a", object{})
	w := &watcher{}
	c, err := apply.NewClient(s.Config(), ours, w, clock.RealClock{}, nil)
	require.NoError(t, err)
	return s, c, w
}

// stored is an object as reset left it, on its way into namespace a.
func stored(resource, kind string, fields object) apply.Request {
	obj := object{"apiVersion": "v1", "kind": kind, "metadata": object{"name": "m", "namespace": "a"}}
	for k, v := range fields {
		obj[k] = v
	}
	gr := schema.GroupResource{Resource: resource}
	reset.Object(obj, gr, "a", &reset.Options{Backup: "b", Restore: "r"})
	return apply.Request{
		Target: apply.Target{GVR: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: "a", Name: "m"},
		Kind:   kind, Object: obj,
		Normalize: func(live map[string]any) { reset.Normalize(live, gr, &reset.Options{}) },
	}
}

func TestCreateFirst(t *testing.T) {
	s, c, w := start(t)
	got := c.Apply(t.Context(), stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}}))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.True(t, got.Fresh)
	require.EqualValues(t, s.UID(mapPath), got.UID)
	require.Empty(t, s.Requests("GET "), "nothing is read unless there is a conflict")
	require.EqualValues(t, 1, w.answers.Load())
	require.Equal(t, "r", apitest.Meta(s.Object(mapPath))["labels"].(object)["velero.io/restore-name"])
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
			s, c, _ := start(t)
			live := object{"apiVersion": "v1", "kind": "ConfigMap", "data": tt.live["data"], "metadata": object{"name": "m", "namespace": "a"}}
			for k, v := range tt.meta {
				apitest.Meta(live)[k] = v
			}
			s.Put(mapPath, live)
			request := stored("configmaps", "ConfigMap", same)
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
			labels, _ := apitest.Meta(s.Object(mapPath))["labels"].(object)
			require.Equal(t, tt.label, labels["velero.io/restore-name"])
		})
	}
}

// Children of an object that is being deleted are collected with it: it has no UID to refer to, whoever created it.
func TestATerminatingObjectIsInTheWayAndNoOwner(t *testing.T) {
	for name, tt := range map[string]struct {
		managers []string
		want     apply.Action
		err      error
	}{
		"somebody's":         {[]string{"someone"}, apply.Failed, apply.ErrTerminating},
		"this restore's own": {[]string{string(ours)}, apply.Created, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := start(t)
			meta := managedBy(tt.managers...)
			meta["name"], meta["namespace"], meta["deletionTimestamp"] = "m", "a", "2026-01-01T00:00:00Z"
			s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "v"}, "metadata": meta})
			request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
			request.Resumed = true
			got := c.Apply(t.Context(), request)
			require.ErrorIs(t, got.Err, tt.err)
			require.Equal(t, tt.want, got.Action)
			require.Empty(t, got.UID)
			require.False(t, got.Fresh)
		})
	}
}

func TestInternalErrorsNameTheWebhook(t *testing.T) {
	for message, want := range map[string]string{
		`Internal error occurred: failed calling webhook "v.example.com": failed to call webhook: Post "https://x": dial tcp: connection refused`: "webhook v.example.com",
		`conversion webhook for example.com/v1, Kind=Widget failed: Post "https://x": context deadline exceeded`:                                  "conversion of example.com/v1, Kind=Widget",
		`Internal error occurred: something else`: "",
	} {
		s, c, _ := start(t)
		s.Say(http.StatusInternalServerError, message)
		s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusInternalServerError, false })
		by, internal := apply.Internal(c.Apply(t.Context(), stored("configmaps", "ConfigMap", nil)).Err)
		require.True(t, internal)
		require.Equal(t, want, by)
		s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusForbidden, false })
		_, internal = apply.Internal(c.Apply(t.Context(), stored("configmaps", "ConfigMap", nil)).Err)
		require.False(t, internal)
	}
}

func TestUpdateThatIsRefusedStillLabels(t *testing.T) {
	s, c, _ := start(t)
	s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": object{"k": "w"}, "metadata": object{"name": "m", "namespace": "a"}})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPatch && body["data"] != nil {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	request.Update = true
	got := c.Apply(t.Context(), request)
	require.Equal(t, apply.Failed, got.Action)
	require.Contains(t, got.Warning, "could not be updated")
	require.NotContains(t, got.Warning, "nor be labelled")
	require.Equal(t, "r", apitest.Meta(s.Object(mapPath))["labels"].(object)["velero.io/restore-name"])
}

func TestAccountsAreMerged(t *testing.T) {
	s, c, _ := start(t)
	s.Put(accountPath, object{"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": []any{object{"name": "live"}},
		"metadata": object{"name": "m", "namespace": "a", "labels": object{"both": "live"}}})
	request := stored("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "stored"}, object{"name": "live"}}})
	apitest.Meta(request.Object)["labels"].(object)["both"] = "stored"
	apitest.Meta(request.Object)["labels"].(object)["only"] = "stored"
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Updated, got.Action, got.Warning)
	require.Equal(t, []any{object{"name": "live"}, object{"name": "stored"}}, s.Object(accountPath)["imagePullSecrets"])
	labels := apitest.Meta(s.Object(accountPath))["labels"].(object)
	require.Equal(t, "live", labels["both"])
	require.Equal(t, "stored", labels["only"])

	again := stored("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "stored"}}})
	require.Equal(t, apply.Skipped, c.Apply(t.Context(), again).Action)
}

func TestOverloadIsWaitedOut(t *testing.T) {
	s, c, w := start(t)
	var asked atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if n := asked.Add(1); n <= 3 {
			return http.StatusTooManyRequests, false
		}
		return 0, false
	})
	got := c.Apply(t.Context(), stored("configmaps", "ConfigMap", nil))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.EqualValues(t, 3, w.throttled.Load())
}

func TestLostAnswerCountsAsCreated(t *testing.T) {
	s, c, _ := start(t)
	var dropped sync.Once
	s.Fail(func(*http.Request, map[string]any) (status int, drop bool) {
		dropped.Do(func() { drop = true })
		return 0, drop
	})
	got := c.Apply(t.Context(), stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}}))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
	require.True(t, got.Fresh)
	require.Len(t, s.Requests("POST "), 2)
}

// ours is the field manager of the restore whose name is r.
var ours = apply.ManagerOf("0d9f6a3e-0a5e-4f0d-8d3c-3f0c0b1f0a11")

// managedBy is the metadata of an object whose fields were set by managers.
func managedBy(managers ...string) object {
	var fields []any
	for _, m := range managers {
		fields = append(fields, object{"manager": m, "operation": "Update"})
	}
	return object{"managedFields": fields}
}

// A label and an age count for nothing: controllers copy labels of an object to those that they make of it, during the
// restore. Such a copy, of other content, counted as created after a takeover, and what the backup has was dropped unsaid.
func TestOnlyTheFieldManagerShowsWhoseAnObjectIs(t *testing.T) {
	labelled := object{"labels": object{"velero.io/restore-name": "r"}, "creationTimestamp": "2099-01-01T00:00:00Z"}
	for name, tt := range map[string]struct {
		meta object
		want apply.Action
	}{
		"this restore created it": {managedBy("someone", string(ours)), apply.Created},
		"a copied label":          {labelled, apply.Failed},
		"another restore":         {managedBy(string(apply.ManagerOf("other"))), apply.Failed},
		"this restore changed it": {managedBy("someone", string(ours)+"-existing"), apply.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := start(t)
			live := object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"k": "w"}, "metadata": tt.meta}
			apitest.Meta(live)["name"], apitest.Meta(live)["namespace"] = "m", "a"
			s.Put(mapPath, live)
			request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
			request.Resumed = true
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
		})
	}
}

// Every request that creates or changes an object names the restore; those that change one which was there before do so in a
// way that a taker without records can tell from a creation.
func TestEveryWriteCarriesAFieldManager(t *testing.T) {
	require.LessOrEqual(t, len(ours)+len("-existing"), 128, "the API server refuses longer ones")
	s, c, _ := start(t)
	request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	created := c.Apply(t.Context(), request)
	require.NoError(t, created.Err)
	_, err := c.Patch(t.Context(), request.Target, object{"data": object{"more": "x"}})
	require.NoError(t, err)
	require.Equal(t, []string{string(ours)}, s.Managers(mapPath))
	for name, live := range map[string]object{"update": {"k": "w"}, "label": {"k": "v"}} {
		s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": live, "metadata": object{"name": "m", "namespace": "a"}})
		request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
		request.Update = true
		require.NoError(t, c.Apply(t.Context(), request).Err)
		require.Equal(t, []string{string(ours) + "-existing"}, s.Managers(mapPath), name)
	}
	s.Put(accountPath, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "m", "namespace": "a"}})
	account := stored("serviceaccounts", "ServiceAccount", object{"imagePullSecrets": []any{object{"name": "pull"}}})
	require.Equal(t, apply.Updated, c.Apply(t.Context(), account).Action)
	require.Equal(t, []string{string(ours) + "-existing"}, s.Managers(accountPath))
}

// What an earlier holder did to an object that was there before shows in the cluster as if the object were its own.
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
			s, c, _ := start(t)
			meta := object{"name": "m", "namespace": "a"}
			if tt.intended != "" {
				meta["labels"] = object{"velero.io/restore-name": "r"}
			}
			s.Put(mapPath, object{"apiVersion": "v1", "kind": "ConfigMap", "data": tt.live, "metadata": meta})
			request := stored("configmaps", "ConfigMap", object{"data": same})
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
	s := apitest.Start(t)
	s.Put("/api/v1/namespaces/a", object{})
	lost := errors.New("lost")
	c, err := apply.NewClient(s.Config(), ours, &watcher{}, clock.RealClock{}, func(context.Context) error { return lost })
	require.NoError(t, err)
	require.ErrorIs(t, c.Apply(t.Context(), stored("configmaps", "ConfigMap", object{})).Err, lost)
	target := stored("configmaps", "ConfigMap", object{}).Target
	_, err = c.Patch(t.Context(), target, object{})
	require.ErrorIs(t, err, lost)
	require.Empty(t, s.Requests("P"))
	_, err = c.Get(t.Context(), target)
	require.True(t, apierrors.IsNotFound(err), "reading is harmless")
}

// Admission may have changed the object between the creation and its lost answer.
func TestLostAnswerCountsAsCreatedWhatWasChangedOnTheWay(t *testing.T) {
	s, c, _ := start(t)
	var dropped sync.Once
	s.Fail(func(r *http.Request, _ map[string]any) (status int, drop bool) {
		dropped.Do(func() { drop = true })
		if r.Method == http.MethodGet {
			s.Object(mapPath)["data"] = object{"k": "v", "injected": "x"}
		}
		return 0, drop
	})
	request := stored("configmaps", "ConfigMap", object{"data": object{"k": "v"}})
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action, got.Warning)
	require.True(t, got.Fresh)
}

func TestVanishedObjectIsCreatedAfterAll(t *testing.T) {
	s, c, _ := start(t)
	s.Put(mapPath, object{})
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet {
			s.Delete(mapPath)
		}
		return 0, false
	})
	got := c.Apply(t.Context(), stored("configmaps", "ConfigMap", nil))
	require.NoError(t, got.Err)
	require.Equal(t, apply.Created, got.Action)
}

func TestRefusals(t *testing.T) {
	s, c, _ := start(t)
	request := stored("configmaps", "ConfigMap", nil)
	request.Namespace = "absent"
	got := c.Apply(t.Context(), request)
	require.Equal(t, apply.Failed, got.Action)
	require.ErrorContains(t, got.Err, "absent")

	s.Fail(func(*http.Request, map[string]any) (int, bool) { return http.StatusUnprocessableEntity, false })
	got = c.Apply(t.Context(), stored("services", "Service", nil))
	require.ErrorContains(t, got.Err, "asked to fail")
	require.Nil(t, s.Object(servicePath))
}
