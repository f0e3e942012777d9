package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// writeMeter stands between a service and the API server. It counts what the service asks to be
// written, whether it is or not, and the bytes of all answers.
type writeMeter struct {
	*proxy
	next       http.RoundTripper
	kubeconfig string // for the service

	jobs      atomic.Int64 // Backups and ConfigMaps (the ledger)
	positions atomic.Int64 // Backups, of which nothing but the position in the queue
	events    atomic.Int64
	read      atomic.Int64 // bytes of answers as sent, watches included
}

// startWriteMeter writes a kubeconfig that leads through the meter into dir. The caller calls
// close.
func startWriteMeter(config *rest.Config, dir string) (*writeMeter, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	m := &writeMeter{next: transport, kubeconfig: filepath.Join(dir, "kubeconfig-metered")}
	if m.proxy, err = startProxy(config.Host, &httputil.ReverseProxy{Transport: m}, func(*httputil.ProxyRequest) {}); err != nil {
		return nil, err
	}
	return m, writeKubeconfig(m.kubeconfig, m.url)
}

// RoundTrip implements http.RoundTripper.
func (m *writeMeter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		m.countWrite(r.URL.Path, body)
	}
	answer, err := m.next.RoundTrip(r)
	if err == nil {
		answer.Body = &countingTransport{ReadCloser: answer.Body, see: func(b []byte) { m.read.Add(int64(len(b))) }}
	}
	return answer, err
}

func (m *writeMeter) countWrite(path string, body []byte) {
	switch {
	case strings.Contains(path, "/leases"):
	case strings.Contains(path, "/events"):
		m.events.Add(1)
	case strings.Contains(path, "/backups/") && positionOnly(body):
		m.positions.Add(1)
	default:
		m.jobs.Add(1)
	}
}

// positionOnly reports whether a merge patch changes status.queuePosition alone.
func positionOnly(body []byte) bool {
	var patch map[string]map[string]json.RawMessage
	if json.Unmarshal(body, &patch) != nil {
		return false
	}
	for key, fields := range patch {
		for field := range fields {
			if path := key + "." + field; path != "metadata.resourceVersion" && path != "metadata.uid" && path != "status.queuePosition" {
				return false
			}
		}
	}
	_, moved := patch["status"]["queuePosition"]
	return moved
}
