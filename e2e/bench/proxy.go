package bench

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// proxy forwards everything that comes to a port of its own. The meters are proxies because what
// they count does not depend on what Holdfast says of itself.
type proxy struct {
	url    string
	server *http.Server
	served chan struct{} // closed when the listener is gone
}

// startProxy starts a proxy before the server at target. The caller calls close.
func startProxy(target string, p *httputil.ReverseProxy, rewrite func(*httputil.ProxyRequest)) (*proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		rewrite(r)
	}
	p.FlushInterval = -1 // watches
	p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	started := &proxy{
		url: "http://" + listener.Addr().String(), served: make(chan struct{}),
		server: &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ErrorLog: p.ErrorLog},
	}
	go func() {
		defer close(started.served)
		_ = started.server.Serve(listener) // should it fail before close, so does every request
	}()
	return started, nil
}

func (p *proxy) close() {
	_ = p.server.Close()
	<-p.served
}

// countingTransport passes a body on and shows every piece of it to see.
type countingTransport struct {
	io.ReadCloser
	see func([]byte)
}

// Read implements io.Reader.
func (c *countingTransport) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.see(b[:n])
	return n, err
}
