package download

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
)

// retryKey is how long a failed attempt to get the key rests.
const retryKey = 2 * time.Second

// ErrNotReady means that the signing key is not there yet; retry.
var ErrNotReady = errors.New("the artifact endpoint has no signing key yet")

// EndpointConfig is what an Endpoint needs.
type EndpointConfig struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	// Base is the URL under which clients reach the endpoint.
	Base  string
	Open  artifact.OpenFunc
	Clock clock.WithTicker
	Log   *slog.Logger
}

// Endpoint is safe for concurrent use.
type Endpoint struct {
	cfg    EndpointConfig
	signer atomic.Pointer[artifact.Signer]
}

// NewEndpoint returns an Endpoint that is not ready until Run got the key.
func NewEndpoint(c EndpointConfig) *Endpoint { return &Endpoint{cfg: c} }

// Run gets the key, however long that takes, and returns nil.
func (e *Endpoint) Run(ctx context.Context) error {
	ticker := e.cfg.Clock.NewTicker(retryKey)
	defer ticker.Stop()
	for {
		key, err := artifact.LoadKey(ctx, e.cfg.Reader, e.cfg.Client, e.cfg.Namespace)
		if err == nil {
			e.signer.Store(&artifact.Signer{Key: key, Base: e.cfg.Base, Clock: e.cfg.Clock})
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		e.cfg.Log.Warn("Failed to load the key of the artifact endpoint; will retry", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Ready reports whether links can be made and served.
func (e *Endpoint) Ready() bool { return e.signer.Load() != nil }

// URL returns a link to an object; ErrNotReady before there is a key.
func (e *Endpoint) URL(location, key string, ttl time.Duration) (string, error) {
	signer := e.signer.Load()
	if signer == nil {
		return "", ErrNotReady
	}
	return signer.URL(location, key, ttl)
}

// ServeHTTP serves links; mount it at artifact.PathPrefix.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	signer := e.signer.Load()
	if signer == nil {
		http.Error(w, ErrNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	artifact.Handler(signer, e.cfg.Open, e.cfg.Log).ServeHTTP(w, r)
}
