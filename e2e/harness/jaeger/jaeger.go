// Package jaeger runs Jaeger in memory for a test and reads traces from its query API.
package jaeger

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// ports of Jaeger's all-in-one program; it opens all of them.
var ports = []string{
	"collector.otlp.grpc.host-port", "query.http-server.host-port", "admin.http.host-port", "collector.otlp.http.host-port",
	"collector.grpc-server.host-port", "collector.http-server.host-port", "query.grpc-server.host-port",
}

var httpClient = &http.Client{Timeout: 30 * time.Second}

// Jaeger is a running server on loopback.
type Jaeger struct {
	Endpoint string // URL of OTLP over gRPC, for OTEL_EXPORTER_OTLP_ENDPOINT
	Query    string // URL of the query API
}

// Start starts a server and stops it when the test is done.
func Start(t *testing.T) *Jaeger {
	t.Helper()
	binary, err := testbed.Binary("jaeger")
	require.NoError(t, err)
	free, err := testbed.FreePorts(len(ports))
	require.NoError(t, err)
	args := []string{"--collector.otlp.enabled=true", "--log-level=warn"}
	for i, flag := range ports {
		args = append(args, fmt.Sprintf("--%s=127.0.0.1:%d", flag, free[i]))
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{Name: "jaeger", Path: binary, Args: args, LogDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { process.Stop(5 * time.Second) })
	j := &Jaeger{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", free[0]), Query: fmt.Sprintf("http://127.0.0.1:%d", free[1])}
	require.Eventually(t, func() bool {
		_, err := j.getTraces(t.Context(), "/api/services")
		return err == nil
	}, time.Minute, 50*time.Millisecond, "Jaeger answers; log: %s", process.LogPath())
	return j
}

// Find asks for the traces in which a service has a span about an object.
func (j *Jaeger) Find(ctx context.Context, service, uid string) ([]Trace, error) {
	tags, err := json.Marshal(map[string]string{"holdfast.object.uid": uid})
	if err != nil {
		return nil, err
	}
	return j.getTraces(ctx, "/api/traces?"+url.Values{"service": {service}, "tags": {string(tags)}, "lookback": {"1h"}, "limit": {"20"}}.Encode())
}

// getTraces asks the query API. Services, which are no traces, are read as none.
func (j *Jaeger) getTraces(ctx context.Context, path string) ([]Trace, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Query+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	var answer struct{ Data json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	if path == "/api/services" {
		return nil, nil
	}
	var traces []Trace
	if err := json.Unmarshal(answer.Data, &traces); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return traces, nil
}
