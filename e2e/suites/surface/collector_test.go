package surface

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// traceSpan is a received span. Ids are hexadecimal; a root has no parent.
type traceSpan struct {
	service, name     string
	trace, id, parent string
	kind              tracev1.Span_SpanKind
	attributes        map[string]string
}

// spanCollector is an OTLP receiver that keeps what it gets.
type spanCollector struct {
	collectorv1.UnimplementedTraceServiceServer
	endpoint string
	mutex    sync.Mutex
	received []traceSpan
}

// startCollector listens on a loopback port until the test is done.
func startCollector(t *testing.T) *spanCollector {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &spanCollector{endpoint: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return c
}

// Export implements OTLP's TraceService.
func (c *spanCollector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, resource := range req.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.received = append(c.received, newSpan(service, s))
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func newSpan(service string, s *tracev1.Span) traceSpan {
	attributes := map[string]string{}
	for _, a := range s.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return traceSpan{
		service: service, name: s.GetName(), kind: s.GetKind(), attributes: attributes, trace: hex.EncodeToString(s.GetTraceId()),
		id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
	}
}

// spansAbout returns the spans that name an object by its UID.
func (c *spanCollector) spansAbout(uid string) []traceSpan {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var found []traceSpan
	for _, s := range c.received {
		if s.attributes["holdfast.object.uid"] == uid {
			found = append(found, s)
		}
	}
	return found
}

// spansOf returns the spans of one trace by their id.
func (c *spanCollector) spansOf(trace string) map[string]traceSpan {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found := map[string]traceSpan{}
	for _, s := range c.received {
		if s.trace == trace {
			found[s.id] = s
		}
	}
	return found
}
