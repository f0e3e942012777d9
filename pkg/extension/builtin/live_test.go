package builtin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

const discovery = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","get","create","delete"]}]}`

// podServer lists two Pods in two pages, and cuts its first answer short after the first Pod.
func podServer(t *testing.T, queries chan<- string) *rest.Config {
	var lists atomic.Int32
	mux := http.NewServeMux()
	reply := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		})
	}
	reply("/api", `{"kind":"APIVersions","versions":["v1"]}`)
	reply("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	reply("/api/v1", discovery)
	mux.HandleFunc("/api/v1/namespaces/shop/pods", func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.Query().Get("labelSelector")
		w.Header().Set("Content-Type", "application/json")
		name, next := "a", "more"
		if r.URL.Query().Get("continue") != "" {
			name, next = "b", ""
		}
		body := fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[{"metadata":{"namespace":"shop","name":%q}}`, next, name)
		if lists.Add(1) == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)+2))
			_, _ = w.Write([]byte(body))
			return
		}
		_, _ = w.Write([]byte(body + "]}"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestLiveShowsEveryObjectOnce(t *testing.T) {
	queries := make(chan string, 8)
	cfg := podServer(t, queries)
	catalog, err := resource.Discover(t.Context(), cfg)
	require.NoError(t, err)
	lists, err := rawlist.New(cfg, rawlist.Options{Clock: clock.RealClock{}})
	require.NoError(t, err)
	live := builtin.Live{Lists: lists, Catalog: catalog}

	var got []string
	require.NoError(t, live.Each(t.Context(), schema.GroupResource{Resource: "pods"}, "shop", "a=b", func(o *action.Object) error {
		id, err := o.Identity()
		got = append(got, id.Namespace+"/"+id.Name)
		return err
	}))
	require.Equal(t, []string{"shop/a", "shop/b"}, got)
	require.Len(t, queries, 3)
	require.Equal(t, "a=b", <-queries)

	stop := fmt.Errorf("stop")
	err = live.Each(t.Context(), schema.GroupResource{Resource: "pods"}, "shop", "", func(*action.Object) error { return stop })
	require.ErrorIs(t, err, stop)
	require.NoError(t, live.Each(t.Context(), schema.GroupResource{Group: "x", Resource: "nosuch"}, "", "", func(*action.Object) error { return stop }))
}
