package download

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaitsForTheKeyThenServes(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	c := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if away.Load() {
				return errors.New("the API server is away")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	store := memstore.New()
	store.Set("backups/b/b-logs.gz", []byte("log"))
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e := NewEndpoint(EndpointConfig{
		Reader: c, Client: c, Namespace: "velero", Base: "http://host:1", Clock: clock, Log: slog.New(slog.DiscardHandler),
		Open: func(context.Context, string) (objectstore.Store, error) { return store, nil },
	})
	fetch := func(url string) int {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))
		return w.Code
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(t.Context()) }()
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	require.False(t, e.Ready())
	_, err := e.URL("default", "k", time.Minute)
	require.ErrorIs(t, err, ErrNotReady)
	require.Equal(t, http.StatusServiceUnavailable, fetch("http://host:1/artifacts/default/k"))
	away.Store(false)
	require.Eventually(t, func() bool { clock.Step(retry); return e.Ready() }, time.Minute, time.Millisecond)
	require.NoError(t, <-done)
	url, err := e.URL("default", "backups/b/b-logs.gz", time.Minute)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, fetch(url))
}
