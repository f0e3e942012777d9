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
	before := b.clusterObjects(t)
	b.installChart(t)
	for _, service := range append([]string{"nats"}, fleet.Services...) {
		pods := b.servicePods(t, service)
		require.Len(t, pods, 1, service)
		for name, pod := range pods {
			require.True(t, isReady(pod), name)
			require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount, name)
		}
	}
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"an application comes back in another namespace", b.testApplications},
		{"files of a StatefulSet come back", b.testVolumes},
		{"volumes survive the kubelet and their movers", b.testDisturbed},
		{"callers from outside", b.testCallers},
		{"replicas share the work", b.testReplicas},
		{"a killed Pod does no harm", b.testKilled},
		{"an evicted Pod hands over", b.testEvicted},
		{"connections are those that the policies allow", b.testPolicies},
		{"an idle installation costs little", b.testIdle},
		{"uninstalling leaves the definitions and the data", func(t *testing.T) { b.testUninstall(t, before) }},
	} {
		if !t.Run(part.name, part.test) {
			b.logPods(t)
			return
		}
	}
}

// logPods adds what the Pods are and have logged to the output of a failed test.
func (b *bed) logPods(t *testing.T) {
	t.Helper()
	t.Log(b.runTool(t, "kubectl", "--namespace", server, "get", "pods,events"))
	for _, service := range fleet.Services {
		t.Log(b.runTool(t, "kubectl", "--namespace", server, "logs", "--tail=20", "--all-containers", "--prefix", "--selector=app.kubernetes.io/component="+service))
	}
}
