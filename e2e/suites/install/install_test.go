//go:build node

package install

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
)

// TestTheChartOnANode is the life of an installation, each part of which leaves it as the next one
// needs it.
func TestTheChartOnANode(t *testing.T) {
	b := newBed(t)
	before := b.objects(t)
	b.install(t)
	for _, service := range append([]string{"nats"}, fleet.Services...) {
		pods := b.pods(t, service)
		require.Len(t, pods, 1, service)
		for name, pod := range pods {
			require.True(t, ready(pod), name)
			require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, name)
		}
	}
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"an application comes back in another namespace", b.applications},
		{"callers from outside", b.callers},
		{"replicas share the work", b.replicas},
		{"a killed Pod does no harm", b.killed},
		{"an evicted Pod hands over", b.evicted},
		{"connections are those that the policies allow", b.policies},
		{"an idle installation costs little", b.idle},
		{"uninstalling leaves the definitions and the data", func(t *testing.T) { b.uninstalls(t, before) }},
	} {
		if !t.Run(part.name, part.test) {
			b.complain(t)
			return
		}
	}
}

// complain adds what the Pods are and have logged to the output of a failed test.
func (b *bed) complain(t *testing.T) {
	t.Helper()
	t.Log(b.tool(t, "kubectl", "--namespace", server, "get", "pods,events"))
	for _, service := range fleet.Services {
		t.Log(b.tool(t, "kubectl", "--namespace", server, "logs", "--tail=20", "--all-containers", "--prefix", "--selector=app.kubernetes.io/component="+service))
	}
}
