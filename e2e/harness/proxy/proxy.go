// Package proxy has what stands between a client and a server in tests and benchmarks: what it sees and
// changes does not depend on what Holdfast says of itself.
package proxy

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Proxy forwards everything that comes to a port of its own.
type Proxy struct {
	// URL is the address that clients use in place of the server's.
	URL string

	server *http.Server
	served chan struct{} // closed when the listener is gone
}

// Handlers are what a proxy does with requests; nil does nothing.
type Handlers struct {
	// Before is called with each request, which is forwarded unless it returns an error.
	Before func(*http.Request) error
	// Rewrite changes what is forwarded.
	Rewrite func(*httputil.ProxyRequest)
	// Answered sees and changes answers.
	Answered func(*http.Response) error
}

// Start starts a proxy before the server at target. The caller calls Close.
func Start(target string, transport http.RoundTripper, h Handlers) (*Proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	log := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	forward := &httputil.ReverseProxy{Transport: transport, ModifyResponse: h.Answered, FlushInterval: -1, ErrorLog: log, Rewrite: func(r *httputil.ProxyRequest) { // at once, for watches
		r.SetURL(to)
		if h.Rewrite != nil {
			h.Rewrite(r)
		}
	}}
	p := &Proxy{URL: "http://" + listener.Addr().String(), served: make(chan struct{})}
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Before != nil {
			if err := h.Before(r); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // should it fail before Close, so does every request
	}()
	return p, nil
}

// Close ends the proxy and the requests under way.
func (p *Proxy) Close() {
	_ = p.server.Close()
	<-p.served
}

// WriteKubeconfig writes a kubeconfig that leads through the proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	file := api.NewConfig()
	file.Clusters["proxy"] = &api.Cluster{Server: p.URL}
	file.Contexts["proxy"] = &api.Context{Cluster: "proxy"}
	file.CurrentContext = "proxy"
	return clientcmd.WriteToFile(*file, path)
}
