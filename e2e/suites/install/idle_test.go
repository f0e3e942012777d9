//go:build node

package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
)

const (
	// settling is after how long nothing of the start or of earlier jobs is left.
	settling = 100 * time.Second
	// window holds several of what services repeat each minute, so that one more or less at its ends does not matter.
	window = 5 * time.Minute
)

// serviceUsage is what a container has used: seconds of processor time since its start, bytes of memory
// that it works with, requests at the API server since its start.
type serviceUsage struct {
	seconds  float64
	memory   float64
	requests float64
}

// testIdle measures one replica of each service that has nothing to do, beside what the chart requests.
func (b *bed) testIdle(t *testing.T) {
	b.upgradeChart(t, "--set", "backupRunner.replicas=1")
	<-time.After(settling)
	before := b.readUsages(t)
	<-time.After(window)
	after := b.readUsages(t)
	var memory, cores, requests float64
	t.Logf("%-24s %10s %10s %12s %12s %10s", "idle", "memory", "requested", "processor", "requested", "API calls")
	for _, service := range append([]string{"nats"}, fleet.Services...) {
		u := after[service]
		cpu := (u.seconds - before[service].seconds) / window.Seconds()
		calls := (u.requests - before[service].requests) / window.Minutes()
		asked := b.requestedResources(t, service)
		t.Logf("%-24s %6.1f MiB %10s %10.1f m %12s %8.1f/min", service, u.memory/(1<<20), asked.Memory(), cpu*1000, asked.Cpu(), calls)
		require.Less(t, u.memory, asked.Memory().AsApproximateFloat64(), "%s: memory", service)
		require.Less(t, cpu, asked.Cpu().AsApproximateFloat64(), "%s: processor", service)
		memory, cores, requests = memory+u.memory, cores+cpu, requests+calls
	}
	t.Logf("%-24s %6.1f MiB %10s %10.1f m %12s %8.1f/min", "in all", memory/(1<<20), "", cores*1000, "", requests)
	require.Less(t, requests, 60.0)
	require.Greater(t, requests, 1.0, "what is counted is there")
}

// requestedResources returns what the only Pod of a service requests.
func (b *bed) requestedResources(t *testing.T, service string) corev1.ResourceList {
	t.Helper()
	pods := b.servicePods(t, service)
	require.Len(t, pods, 1, service)
	for _, pod := range pods {
		return pod.Spec.Containers[0].Resources.Requests
	}
	return nil
}

// readUsages returns what the kubelet says of each service, and the service of its requests.
func (b *bed) readUsages(t *testing.T) map[string]serviceUsage {
	t.Helper()
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name, Namespace string }
			Containers []struct {
				CPU    struct{ UsageCoreNanoSeconds float64 }
				Memory struct{ WorkingSetBytes float64 }
			}
		}
	}
	require.NoError(t, json.Unmarshal(b.readRaw(t, "/api/v1/nodes/"+node.Name+"/proxy/stats/summary"), &summary))
	found := map[string]serviceUsage{}
	for _, service := range append([]string{"nats"}, fleet.Services...) {
		for name, pod := range b.servicePods(t, service) {
			for _, p := range summary.Pods {
				if p.PodRef.Namespace == server && p.PodRef.Name == name {
					c := p.Containers[0]
					found[service] = serviceUsage{seconds: c.CPU.UsageCoreNanoSeconds / 1e9, memory: c.Memory.WorkingSetBytes, requests: b.apiRequests(t, pod)}
				}
			}
		}
		require.NotZero(t, found[service].memory, "the kubelet knows %s", service)
	}
	return found
}

// apiRequests returns how many requests a service has made at the API server, by its own metrics; NATS
// makes none.
func (b *bed) apiRequests(t *testing.T, pod *corev1.Pod) (made float64) {
	t.Helper()
	for _, port := range pod.Spec.Containers[0].Ports {
		if port.Name != "http" || strings.HasSuffix(pod.Labels["app.kubernetes.io/component"], "nats") {
			continue
		}
		text := b.readRaw(t, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", server, pod.Name, port.ContainerPort))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		require.NoError(t, err)
		require.Contains(t, families, "rest_client_requests_total", pod.Name)
		for _, m := range families["rest_client_requests_total"].Metric {
			made += m.GetCounter().GetValue()
		}
	}
	return made
}

// readRaw reads a path of the API server.
func (b *bed) readRaw(t *testing.T, path string) []byte {
	t.Helper()
	text, err := b.kube.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	require.NoError(t, err, path)
	return text
}
