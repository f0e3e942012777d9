// Package gate is an HTTP proxy in front of an S3 server that can hold requests until a test lets
// them go, slow them down, and list them. A held request stops a job at a known step for
// as long as a test needs, without a change to the product.
package gate

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
)

// Request is one request as the proxy saw it.
type Request struct {
	Method string // of HTTP, or LIST for a listing
	Key    string // of the object; the prefix of a listing
}

// Match selects requests.
type Match func(Request) bool

// Writes matches what changes objects whose keys contain a text.
func Writes(text string) Match {
	return func(r Request) bool {
		return (r.Method == http.MethodPut || r.Method == http.MethodPost) && strings.Contains(r.Key, text)
	}
}

// Gate is a running proxy. Its methods are safe for concurrent use.
type Gate struct {
	URL string // of the proxy, in place of the server's

	proxy     *proxy.Proxy
	transport *http.Transport
	closed    chan struct{}

	mu    sync.Mutex
	holds []*Hold
	slow  Match
	delay time.Duration
	seen  []Request
}

// Start starts a proxy in front of the server at target (an http URL). The caller calls Close.
func Start(target string) (*Gate, error) {
	g, transport := &Gate{closed: make(chan struct{})}, &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
	forward, err := proxy.Start(target, transport, proxy.Handlers{
		Before:  g.passRequest,
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host }, // it is signed
	})
	if err != nil {
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	g.URL, g.proxy, g.transport = forward.URL, forward, transport
	return g, nil
}

// errAbandoned means that nothing waits for a request any more.
var errAbandoned = errors.New("the request was given up at the gate")

// passRequest returns when the request may go on; an error when nothing waits for it any more.
func (g *Gate) passRequest(r *http.Request) error {
	request := parseRequest(r)
	g.mu.Lock()
	g.seen = append(g.seen, request)
	delay := g.delay
	if g.slow == nil || !g.slow(request) {
		delay = 0
	}
	var holding []*Hold
	for _, hold := range g.holds {
		if hold.match(request) {
			holding = append(holding, hold)
		}
	}
	g.mu.Unlock()
	for _, hold := range holding {
		hold.noteArrived()
		if err := g.awaitRelease(r, hold.released); err != nil {
			return err
		}
	}
	if delay == 0 {
		return nil
	}
	passed := make(chan struct{})
	timer := time.AfterFunc(delay, func() { close(passed) })
	defer timer.Stop()
	return g.awaitRelease(r, passed)
}

func (g *Gate) awaitRelease(r *http.Request, released <-chan struct{}) error {
	select {
	case <-released:
		return nil
	case <-g.closed:
	case <-r.Context().Done():
	}
	return errAbandoned
}

// parseRequest reads a path-style request.
func parseRequest(r *http.Request) Request {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if key == "" && r.Method == http.MethodGet {
		return Request{Method: "LIST", Key: r.URL.Query().Get("prefix")}
	}
	return Request{Method: r.Method, Key: key}
}

// Slow delays every matching request until Slow is called again; nil slows
// nothing.
func (g *Gate) Slow(match Match, delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow, g.delay = match, delay
}

// Seen returns how many requests matched so far, held ones included.
func (g *Gate) Seen(match Match) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, r := range g.seen {
		if match(r) {
			n++
		}
	}
	return n
}

// Close ends the proxy; held requests fail.
func (g *Gate) Close() {
	close(g.closed)
	g.proxy.Close()
	g.transport.CloseIdleConnections()
}

// Hold is a rule that keeps requests waiting.
type Hold struct {
	gate     *Gate
	match    Match
	reach    sync.Once
	reached  chan struct{}
	release  sync.Once
	released chan struct{}
}

// Hold keeps matching requests from now on until Release.
func (g *Gate) Hold(match Match) *Hold {
	h := &Hold{gate: g, match: match, reached: make(chan struct{}), released: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, h)
	return h
}

func (h *Hold) noteArrived() { h.reach.Do(func() { close(h.reached) }) }

// Reached is closed when the first matching request waits.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Release lets the waiting requests go and all that come later. A second call does nothing.
func (h *Hold) Release() {
	h.release.Do(func() {
		h.gate.mu.Lock()
		h.gate.holds = slices.DeleteFunc(h.gate.holds, func(other *Hold) bool { return other == h })
		h.gate.mu.Unlock()
		close(h.released)
	})
}
