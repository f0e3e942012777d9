package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
)

// Request is a request of the restore-runner for an object of an application.
type Request struct {
	Method, Path string
	Body         []byte
}

// Proxy stands between restore-runner and the API server. It calls Before with each request for an
// object of an application and forwards the request when Before returns. Its methods are safe for
// concurrent use.
type Proxy struct {
	*proxy.Proxy

	mu     sync.Mutex
	before func(context.Context, Request) error
}

// StartProxy starts a proxy that forwards with the identity of config. The caller calls Close.
func StartProxy(config *rest.Config) (*Proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	p := &Proxy{}
	p.Proxy, err = proxy.Start(config.Host, transport, proxy.Handlers{Before: p.holdRequest})
	return p, err
}

// Before sets what each request waits for; nil lets all pass. A request whose sender is gone is not
// forwarded.
func (p *Proxy) Before(do func(context.Context, Request) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = do
}

// own are the paths of requests that are not about applications' objects.
var own = []string{"/apis/velero.io/", "/apis/coordination.k8s.io/", "/namespaces/velero/"}

func (p *Proxy) holdRequest(r *http.Request) error {
	p.mu.Lock()
	before := p.before
	p.mu.Unlock()
	if before == nil || r.URL.Query().Get("watch") != "" {
		return nil
	}
	for _, path := range own {
		if strings.Contains(r.URL.Path, path) {
			return nil
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := before(r.Context(), Request{Method: r.Method, Path: r.URL.Path, Body: body}); err != nil {
		return err
	}
	return r.Context().Err()
}
