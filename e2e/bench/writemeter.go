package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
)

// writeMeter stands between a service and the API server. It counts what the service asks to be
// written, whether it is or not, and the bytes of all answers.
type writeMeter struct {
	*proxy.Proxy
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
	m := &writeMeter{kubeconfig: filepath.Join(dir, "kubeconfig-metered")}
	if m.Proxy, err = proxy.Start(config.Host, transport, proxy.Handlers{Before: m.seeRequest, Answered: m.countAnswer}); err != nil {
		return nil, err
	}
	return m, m.WriteKubeconfig(m.kubeconfig)
}

func (m *writeMeter) seeRequest(r *http.Request) error {
	if r.Method == http.MethodGet || r.ContentLength == 0 {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.countWrite(r.URL.Path, body)
	return nil
}

func (m *writeMeter) countAnswer(answer *http.Response) error {
	answer.Body = &countingBody{ReadCloser: answer.Body, see: func(b []byte) { m.read.Add(int64(len(b))) }}
	return nil
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
