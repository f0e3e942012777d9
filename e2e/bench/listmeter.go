package bench

import (
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
)

// listMeter stands between services and the API server and counts the objects in the answers to
// lists.
type listMeter struct {
	*proxy.Proxy
	kubeconfig string // for the services
	objects    atomic.Int64
}

// startListMeter writes a kubeconfig that leads through the meter into dir. The caller calls close.
func startListMeter(config *rest.Config, dir string) (*listMeter, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // a packed answer could not be counted
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	m := &listMeter{kubeconfig: filepath.Join(dir, "kubeconfig-metered")}
	m.Proxy, err = proxy.Start(config.Host, transport, proxy.Handlers{
		Answered: m.countItems,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Del("Accept-Encoding")
			r.Out.Header.Set("Accept", onlyJSON(r.In.Header.Get("Accept")))
		},
	})
	if err != nil {
		return nil, err
	}
	return m, m.WriteKubeconfig(m.kubeconfig)
}

// onlyJSON leaves the JSON forms of what a client accepts: protobuf could not be counted.
func onlyJSON(accept string) string {
	var kept []string
	for form := range strings.SplitSeq(accept, ",") {
		if strings.HasPrefix(strings.TrimSpace(form), "application/json") {
			kept = append(kept, form)
		}
	}
	if len(kept) == 0 {
		return "application/json"
	}
	return strings.Join(kept, ",")
}

// countItems shows the answers to lists, which are the ones with a field "items", to a counter.
func (m *listMeter) countItems(answer *http.Response) error {
	request := answer.Request
	if request.Method == http.MethodGet && answer.StatusCode == http.StatusOK && request.URL.Query().Get("watch") == "" {
		counter := &itemCounter{}
		answer.Body = &countingBody{ReadCloser: answer.Body, see: func(b []byte) { m.objects.Add(counter.countPiece(b)) }}
	}
	return nil
}

// itemCounter counts the elements of the field "items" of one JSON object that comes in pieces. It
// parses nothing of JSON but brackets and strings, and shares no code with the product.
type itemCounter struct {
	depth    int
	quoted   bool
	escaped  bool
	items    bool   // inside the array
	lastText []byte // the last string of the outermost object
}

// countPiece returns how many items begin in the next piece.
func (c *itemCounter) countPiece(piece []byte) int64 {
	began := int64(0)
	for _, b := range piece {
		switch {
		case c.quoted:
			c.takeTextByte(b)
		case b == '"':
			c.quoted = true
			if c.depth == 1 {
				c.lastText = c.lastText[:0]
			}
		case b == '{' || b == '[':
			if c.depth == 1 {
				c.items = b == '[' && string(c.lastText) == "items"
			}
			if c.depth == 2 && c.items {
				began++
			}
			c.depth++
		case b == '}' || b == ']':
			c.depth--
		}
	}
	return began
}

// takeTextByte takes a byte inside a string.
func (c *itemCounter) takeTextByte(b byte) {
	switch {
	case c.escaped:
		c.escaped = false
	case b == '\\':
		c.escaped = true
	case b == '"':
		c.quoted = false
		return
	}
	if c.depth == 1 {
		c.lastText = append(c.lastText, b)
	}
}
