package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
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
	// URL is the address that clients use in place of the API server's.
	URL string

	server *http.Server
	served chan struct{}

	mu     sync.Mutex
	before func(context.Context, Request) error
}

// StartProxy starts a proxy that forwards with the identity of config. The caller calls Close.
func StartProxy(config *rest.Config) (*Proxy, error) {
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy: %w", err)
	}
	p := &Proxy{URL: "http://" + listener.Addr().String(), served: make(chan struct{})}
	forward := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.holdRequest(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // if it ends early every request is refused
	}()
	return p, nil
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

// Kubeconfig writes a kubeconfig that leads through the proxy and returns its path.
func (p *Proxy) Kubeconfig(dir string) (string, error) {
	config := api.NewConfig()
	config.Clusters["proxy"] = &api.Cluster{Server: p.URL}
	config.AuthInfos["proxy"] = &api.AuthInfo{}
	config.Contexts["proxy"] = &api.Context{Cluster: "proxy", AuthInfo: "proxy"}
	config.CurrentContext = "proxy"
	path := filepath.Join(dir, "kubeconfig-proxy")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

// Close ends the proxy and the requests under way.
func (p *Proxy) Close() {
	_ = p.server.Close()
	<-p.served
}
